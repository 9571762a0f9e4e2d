"""What the chaos run breaks, at random from a seed: processes of every role, both stores, and the
network between them."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.support.servers.product import Child, Product, Role
from tests.support.servers.proxy import Proxy
from tests.support.servers.stores import Server
from tests.support.servers.wrong_clock import WrongClock

GRACE_S = 8.0
"""How long after a fault that clients may notice their calls may still end because of it."""
ROLES: tuple[Role, ...] = ("policy", "gateway", "judge", "audit")
STOPPED: tuple[tuple[Role, ...], ...] = (("gateway",), ("policy",), ("judge", "audit"))
"""The order in which compose stops the roles: each has ended before the next is told."""
_WEIGHTS = {"policy": 10, "judge": 3, "audit": 4, "gateway": 2}
_DAYS_OFF = (-3.0, -30 / 86_400, 30 / 86_400, 45.0)
"""A gateway whose clock is 30 s off takes calls, one that is days off does not."""


@dataclass
class Fault:
    """One thing that was broken. `visible`: calls under way then may end with an error."""

    name: str
    began: float
    ended: float
    visible: bool


class Breaker:
    """Breaks one thing after the other and mends it again. `ports` are those of the gateways,
    `clocks` those of all processes of a role."""

    def __init__(
        self,
        product: Product,
        valkey: Server,
        postgres: Server,
        proxies: dict[str, Proxy],
        ports: list[int],
        seed: int,
        clocks: dict[Role, WrongClock],
    ) -> None:
        self._product, self._valkey, self._postgres, self._proxies, self._clocks = (
            product,
            valkey,
            postgres,
            proxies,
            clocks,
        )
        self._random = random.Random(seed)
        self._port_of = dict(zip((c.pid for c in product.of("gateway")), ports, strict=True))
        self._buried: list[Child] = []
        self.faults: list[Fault] = []
        self.counts = Counter[str]()
        self.ended: list[str] = []
        """Processes that ended by themselves, which none should."""
        self._name = ""

    def may_be_seen(self, began: float, ended: float) -> bool:
        """Was anything broken in that time that a client may notice?"""
        return any(f.visible and f.began < ended and began < f.ended + GRACE_S for f in self.faults)

    def near(self, began: float, ended: float) -> list[str]:
        """What was broken in that time, or shortly before, that a client may notice or not."""
        return [f.name for f in self.faults if f.began < ended and began < f.ended + GRACE_S]

    def run(self, is_over: Callable[[], bool]) -> None:
        """Break until it is over. In the main thread: servers started by another would end with it
        (sluice/processes.py)."""
        actions: list[tuple[int, Callable[[], bool]]] = [
            (10, self._kill),
            (5, self._sleep),
            (5, self._terminate),
            (2, self._restart_valkey),
            (1, self._restart_postgres),
            (4, self._cut_network),
            (2, self._silence_network),
            (2, self._slow_network),
            (1, self._terminate_workers),
            (1, self._stop_all),
            (2, self._jump_clock),
        ]
        deck: list[Callable[[], bool]] = []
        while not is_over():
            # each as often as its weight before any comes again: the rare ones come too
            deck = deck or self._random.sample(
                [a for _, a in actions],
                counts=[w for w, _ in actions],
                k=sum(w for w, _ in actions),
            )
            action = deck.pop()
            # as long as it is not known, as if clients could see it
            fault = Fault("", time.monotonic(), float("inf"), visible=True)
            self.faults.append(fault)
            fault.visible, fault.name, fault.ended = action(), self._name, time.monotonic()
            self.counts[fault.name] += 1
            self.replace_ended()
            time.sleep(self._random.uniform(0.2, 1.2))

    def replace_ended(self) -> None:
        """Start a process anew for each that ended and was not ended here, as a supervisor does."""
        for child in list(self._product.children):
            if child.process.poll() is not None and child not in self._buried:
                self.ended.append(
                    f"{child.log.name}: ended by itself with {child.process.returncode}"
                )
                self._replace(child)

    def _victim(self) -> Child:
        role = self._random.choices(ROLES, [_WEIGHTS[r] for r in ROLES])[0]
        return self._random.choice(self._product.of(role))

    def _replace(self, *children: Child) -> None:
        self._buried += children
        self._product.start(*(child.role for child in children if child.role != "gateway"))
        for port in [self._port_of.pop(child.pid) for child in children if child.role == "gateway"]:
            (fresh,) = self._product.start("gateway", port=port)
            self._port_of[fresh.pid] = port

    def _kill(self) -> bool:
        child = self._victim()
        self._name = f"{child.role} SIGKILL"
        child.kill(signal.SIGKILL)
        child.wait()
        self._replace(child)
        return child.role == "gateway"

    def _terminate(self) -> bool:
        child = self._victim()
        self._name = f"{child.role} SIGTERM"
        self._end([child])
        self._replace(child)
        return child.role == "gateway"

    def _end(self, children: Iterable[Child]) -> None:
        children = list(children)
        for child in children:
            child.kill(signal.SIGTERM)
        for child in children:
            code = child.wait()
            assert code == 0, f"{child.role} ended with {code} after SIGTERM:\n{child.tail()}"

    def _terminate_workers(self) -> bool:
        self._name = "policy, judge, audit SIGTERM at once"
        workers = [
            child for roles in STOPPED[1:] for role in roles for child in self._product.of(role)
        ]
        self._end(workers)
        self._replace(*workers)
        # a new call waits for a worker, and may wait too long
        return True

    def _stop_all(self) -> bool:
        self._name = "gateway, policy, judge, audit SIGTERM in compose's order"
        living = [child for roles in STOPPED for role in roles for child in self._product.of(role)]
        for roles in STOPPED:
            self._end(child for child in living if child.role in roles)
        self._replace(*living)
        return True

    def _jump_clock(self) -> bool:
        role, days = self._random.choice(sorted(self._clocks)), self._random.choice(_DAYS_OFF)
        self._name = f"{role} clock jumps and comes back"
        self._clocks[role].set(days)
        time.sleep(self._random.uniform(0.5, 3.0))
        self._clocks[role].set(0)
        return role == "gateway"

    def _sleep(self) -> bool:
        child = self._victim()
        self._name = f"{child.role} SIGSTOP, SIGCONT"
        os.kill(child.pid, signal.SIGSTOP)
        try:
            time.sleep(self._random.uniform(0.3, 3.0))
        finally:
            os.kill(child.pid, signal.SIGCONT)
        return child.role == "gateway"

    def _restart_valkey(self) -> bool:
        number = self._random.choice((signal.SIGKILL, signal.SIGTERM))
        self._name = f"Valkey {number.name}, restart"
        self._valkey.kill(number)
        self._valkey.start()
        return True

    def _restart_postgres(self) -> bool:
        number = self._random.choice((signal.SIGINT, signal.SIGQUIT))
        self._name = f"PostgreSQL {number.name}, restart"
        self._postgres.kill(number)
        self._postgres.start()
        return False

    def _proxy(self) -> tuple[str, Proxy]:
        return self._random.choice(sorted(self._proxies.items()))

    def _cut_network(self) -> bool:
        name, proxy = self._proxy()
        self._name = f"{name} connections cut"
        if self._random.random() < 0.5:
            # what was done is not known: its answers are lost
            proxy.hold_replies()
            time.sleep(0.05)
        proxy.reset()
        proxy.heal()
        return name == "gateway-redis"

    def _silence_network(self) -> bool:
        name, proxy = self._proxy()
        self._name = f"{name} silent"
        proxy.black_hole()
        time.sleep(self._random.uniform(0.5, 3.0))
        proxy.heal()
        # one proxy for all processes of a role: with no policy worker a new call waits, and may
        # wait too long
        return name in ("gateway-redis", "policy-redis")

    def _slow_network(self) -> bool:
        name, proxy = self._proxy()
        self._name = f"{name} slow"
        proxy.delay(0.05)
        time.sleep(self._random.uniform(0.5, 2.0))
        proxy.heal()
        return False
