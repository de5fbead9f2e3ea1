"""Where things lie in the state directory. One place, so that no two processes disagree."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The state directory of one Stoker."""

    root: Path

    @property
    def database(self) -> Path:
        """Resources and events."""
        return self.root / "state.db"

    @property
    def ledger(self) -> Path:
        """Usage records; apart from the state, so that a full or corrupt ledger never stops control."""
        return self.root / "ledger.db"

    @property
    def spool(self) -> Path:
        """Ledger segments, written by gateway workers."""
        return self.root / "spool"

    @property
    def run(self) -> Path:
        """Run files, live slots, sockets."""
        return self.root / "run"

    @property
    def routes(self) -> Path:
        """What the gateways may know about models."""
        return self.root / "routes.json"

    @property
    def callers(self) -> Path:
        """Whom the gateways let in."""
        return self.root / "callers.json"

    @property
    def models(self) -> Path:
        """Model files that were fetched."""
        return self.root / "models"

    @property
    def logs(self) -> Path:
        """One file per engine attempt, and one for each of our processes."""
        return self.root / "logs"

    @property
    def keys(self) -> Path:
        """Secrets, each 0600."""
        return self.root / "keys"

    @property
    def starts(self) -> Path:
        """What engines took when they started, a line each: the planner learns from it."""
        return self.root / "starts.jsonl"

    @property
    def api_socket(self) -> Path:
        """The controller's API."""
        return self.run / "api.sock"

    @property
    def admin_token(self) -> Path:
        """The token that the API asks for."""
        return self.keys / "admin.token"

    @property
    def hub_token(self) -> Path:
        """The token for a model hub."""
        return self.keys / "hub.token"

    @property
    def probe_key(self) -> Path:
        """Signs the controller's probe requests."""
        return self.keys / "probe.key"

    def make(self) -> None:
        """Create the folders, readable by their owner alone."""
        for folder in (self.root, self.spool, self.run, self.models, self.logs, self.keys):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
