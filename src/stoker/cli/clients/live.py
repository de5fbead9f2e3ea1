"""What does the running Stoker offer to a client? Its address from the API, its names and limits from the routes."""

from dataclasses import dataclass

from stoker.base.errors import Driver, Fault, Invalid, nearest
from stoker.base.layout import Layout
from stoker.checks.clients.base import Service
from stoker.cli.client import Client
from stoker.cli.output import text
from stoker.drivers import files
from stoker.facts.routes import Routes, open_routes
from stoker.facts.routes import Service as Routed


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The address and the policy in force."""

    origin: str
    routes: Routes

    def service(self, model: str, auxiliary: str) -> Service:
        """Describe one service. Raises Invalid naming the nearest model, or all of them."""
        routed = self._routed(model)
        if auxiliary:
            self._routed(auxiliary, field="--auxiliary")
        names = {name for target in routed.targets for name in target.endpoints}
        contexts = [e.context_tokens for e in self.routes.endpoints if e.name in names and e.context_tokens]
        return Service(
            origin=self.origin,
            model=model or _short(routed),
            auxiliary=auxiliary,
            context_tokens=min(contexts, default=0),  # a request may go to any of them
            output_tokens=routed.max_output_tokens,
            first_byte_seconds=routed.timeouts.first_byte,
        )

    def _routed(self, model: str, *, field: str = "--model") -> Routed:
        services = self.routes.services
        names = [name for service in services for name in service.models]
        if not model and len(services) == 1:
            return services[0]
        found = next((service for service in services if model in service.models), None)
        if found is not None:
            return found
        if not names:
            raise Invalid("no model is exposed yet: `stoker status` tells why")
        if not model:
            raise Invalid(f"say which model: --model {' | '.join(_short(service) for service in services)}")
        hint = nearest(model, names) or f"there are: {', '.join(names)}"
        raise Invalid(Fault(message=f"no model is called '{model}'", field=field, hint=hint))


def _short(service: Routed) -> str:
    """Give the name without its namespace where that is enough."""
    return min(service.models, key=lambda name: ("/" in name, service.models.index(name)))


def live(api: Client, layout: Layout) -> Live:
    """Read what is in force. Raises Driver when nothing runs here."""
    endpoint = text(api.get("/v1/status"), "endpoint")
    data = files.read(layout.routes)
    if not endpoint or data is None:
        raise Driver("the gateway has no routes yet: `stoker status` tells why")
    try:
        routes = open_routes(data)
    except ValueError as error:
        raise Driver(f"{layout.routes}: {error}") from error
    return Live(origin=endpoint.removesuffix("/v1"), routes=routes)
