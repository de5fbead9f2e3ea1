"""The engine behind the script: continuous batching by the planner's own machine, in real time or faster."""
