"""What is known of an encoder is known of its smaller copies."""

import pytest
from known_encoder import Known, check_known

from stsbench.encoders.roles import TextTask
from stsbench.extensions.smaller_copies.variant import Form, Held, Variant, Vectors


@pytest.mark.parametrize("make", [
    lambda base: Held(base, Vectors()), lambda base: Variant(base, Form(None, "binary"), Vectors()),
], ids=["held", "binary"])
@pytest.mark.parametrize("read", [
    lambda made: made, lambda made: made.for_role("query"), lambda made: made.behind("x: "),
    lambda made: made.for_task(TextTask("T", "STS")),
], ids=["as it is", "in a role", "behind a prompt", "of a task"])
def test_whatever_is_known_of_the_base_is_behind_a_copy(make, read):
    base = Known()
    made = read(make(base))
    assert type(made) is type(make(base))
    check_known(made, base)
