"""Model files: are they here, whole and allowed; and if not, bring them here, once for all who wait.

Looking is cheap (headers are read once per file and change); fetching runs in a child process or a thread of its own.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stoker.base import clock
from stoker.base.errors import Driver, Invalid, StokerError
from stoker.base.layout import Layout
from stoker.base.units import show_bytes
from stoker.decide import licence
from stoker.decide.replica import Check
from stoker.drivers import models, weights
from stoker.drivers.fetch import Progress, fetch_repo
from stoker.engines.base import Model
