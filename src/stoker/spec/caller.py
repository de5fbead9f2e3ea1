"""Who may ask, with which credentials, for what and how much."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.meta import Bool, Natural, SecretRef, Spec, Time, epoch


class CallerCredential(Spec):
    """One credential. Of a key only the hash is kept: the key itself is shown once. A JWT is named by its subject."""

    id: str = ""  # shown in usage and audit; empty: the first characters of the hash, or the subject
    type: Literal["APIKey", "JWT"] = "APIKey"
    issuer: str = ""  # of a JWT; empty: the one that the gateway believes
    subject: str = ""  # of a JWT: what its claim says, `sub` unless the gateway names another
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
            or self.subject
            or (self.hash or "").removeprefix("sha256:")[:8]
            or (self.secret_ref.name if self.secret_ref else "")
        )

    @model_validator(mode="after")
    def _valid(self) -> "CallerCredential":
        if self.type == "JWT":
            if not self.subject or self.hash is not None or self.secret_ref is not None:
                raise ValueError("type JWT takes a subject (and an issuer), no hash and no secretRef")
        elif self.subject or self.issuer:
            raise ValueError("issuer and subject belong to type JWT")
        elif (self.hash is None) == (self.secret_ref is None):
            raise ValueError("give exactly one of hash, secretRef")
        if self.not_before and self.expires_at and epoch(self.not_before) >= epoch(self.expires_at):
            raise ValueError("notBefore is not before expiresAt")
        return self


class Allow(Spec):
    """Which services: ``namespace/name``, or ``*`` for all that are exposed. Empty: none."""

    services: tuple[Annotated[str, Field(pattern=r"^(\*|[a-z0-9-]+/[a-z0-9-]+)$")], ...] = ()


class Amounts(Spec):
    """How much. 0: no limit. Minutes slide; the day is the one of UTC."""

    requests_per_minute: Natural = 0
    tokens_per_minute: Natural = 0
    tokens_per_day: Natural = 0
    concurrent: Natural = 0
    max_output_tokens: Natural = 0


class CallerLimits(Amounts):
    """How much over all models, and of single ones by ``namespace/name``: both hold. 0: no limit."""

    models: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")], Amounts] = Field(default_factory=dict)


class CallerSpec(Spec):
    """One person, agent or program."""

    kind: Literal["Person", "Agent", "Service"] = "Service"
    display_name: str = ""
    credentials: tuple[CallerCredential, ...] = ()
    allow: Allow = Allow()
    limits: CallerLimits = CallerLimits()
    priority: Annotated[int, Strict(), Field(ge=-100, le=100)] = 0
    cost_centre: str = ""
    on_revoke: Literal["Finish", "Cut"] | None = None  # None: as the gateway has it
