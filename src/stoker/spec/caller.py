"""Who may ask, with which credentials, for what and how much."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.meta import Bool, Natural, SecretRef, Spec, Time, epoch


class CallerCredential(Spec):
    """One credential. Of a key only the hash is kept: the key itself is shown once."""

    id: str = ""  # shown in usage and audit; empty: the first characters of the hash
    type: Literal["APIKey", "JWT"] = "APIKey"
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    secret_ref: SecretRef | None = None
    not_before: Time | None = None
    expires_at: Time | None = None
    revoked: Bool = False

    @property
    def key_id(self) -> str:
        """A short name for the credential that gives nothing away."""
        return (
            self.id
            or (self.hash or "").removeprefix("sha256:")[:8]
            or (self.secret_ref.name if self.secret_ref else "")
        )

    @model_validator(mode="after")
    def _valid(self) -> "CallerCredential":
        if (self.hash is None) == (self.secret_ref is None):
            raise ValueError("give exactly one of hash, secretRef")
        if self.not_before and self.expires_at and epoch(self.not_before) >= epoch(self.expires_at):
            raise ValueError("notBefore is not before expiresAt")
        return self


class Allow(Spec):
    """Which services: ``namespace/name``, or ``*`` for all that are exposed. Empty: none."""

    services: tuple[Annotated[str, Field(pattern=r"^(\*|[a-z0-9-]+/[a-z0-9-]+)$")], ...] = ()


class CallerLimits(Spec):
    """How much. 0: no limit."""

    requests_per_minute: Natural = 0
    tokens_per_minute: Natural = 0
    tokens_per_day: Natural = 0
    concurrent: Natural = 0
    max_output_tokens: Natural = 0


class CallerSpec(Spec):
    """One person, agent or program."""

    kind: Literal["Person", "Agent", "Service"] = "Service"
    display_name: str = ""
    credentials: tuple[CallerCredential, ...] = ()
    allow: Allow = Allow()
    limits: CallerLimits = CallerLimits()
    priority: Annotated[int, Strict(), Field(ge=-100, le=100)] = 0
    cost_centre: str = ""
