"""What decisions about replicas rest on: files that were looked at, engines that were asked."""
