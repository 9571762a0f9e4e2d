"""Effects are values that rules can ask about."""

from policy.effects.effect import MAX_TARGET, Effect, matches


def test_an_effect_matches_what_is_asked_and_nothing_asked_matches_all() -> None:
    effect = Effect.of("delete", "home", "~/x", wide=True, by="rm")
    assert matches(effect)
    assert matches(effect, ("delete", "write"), ("home",), True)
    assert not matches(effect, ("write",))
    assert not matches(effect, (), ("temp",))
    assert not matches(effect, wide=False)


def test_texts_of_an_effect_are_cut() -> None:
    effect = Effect.of("read", "system", "x" * 1_000, by="y" * 1_000)
    assert len(effect.target) == len(effect.by) == MAX_TARGET
