"""The controller of the survival tests as a process of its own."""

import sys

from tests.drivers.hosts.test_survival import CONTROLLER

if __name__ == "__main__":
    exec(compile(CONTROLLER, "controller", "exec"), {"__name__": "__main__", "sys": sys})  # noqa: S102
