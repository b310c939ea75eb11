from neural_flow.drawing import Arrow
from neural_flow.layout.line_kinds import Way
from neural_flow.layout.sheet import make_routes


def routes_of(*ways):
    found = [Way(Arrow(arrow_id=index, source=0, target=index + 1), 0, list(way)) for index, way in enumerate(ways)]
    return make_routes(found, is_curved=False, direction="lr")


def test_a_line_that_bends_off_splits_where_its_corner_starts():
    _, second = routes_of([(0, 0), (40, 0)], [(0, 0), (10, 0), (10, 20), (50, 20)])
    assert second.taps == ((4, 0),)
    assert second.points == ((0, 0), (4, 0), (10, 0), (10, 20), (50, 20))
    assert second.num_shared_points == 2


def test_a_line_that_bends_off_at_once_shares_nothing():
    _, second = routes_of([(0, 0), (40, 0)], [(0, 0), (5, 0), (5, 20), (50, 20)])
    assert second.num_shared_points == 0
    assert second.points == ((0, 0), (5, 0), (5, 20), (50, 20))


def test_two_corners_share_a_short_stretch():
    _, second = routes_of([(0, 0), (0, 40), (40, 40)], [(0, 0), (0, 40), (14, 40), (14, 60)])
    assert second.taps == ((8, 40),)
    _, second = routes_of([(0, 0), (0, 40), (40, 40)], [(0, 0), (0, 40), (9, 40), (9, 60)])
    assert second.taps == ((6, 40),)


def test_a_line_that_goes_on_splits_where_the_other_starts_to_bend():
    _, second = routes_of([(0, 0), (20, 0), (20, -30)], [(0, 0), (60, 0)])
    assert second.taps == ((14, 0),)
    assert second.points == ((0, 0), (14, 0), (60, 0))


def test_lines_that_part_to_both_sides_split_before_their_corners():
    _, second = routes_of([(0, 0), (20, 0), (20, -30)], [(0, 0), (20, 0), (20, 30)])
    assert second.taps == ((14, 0),)
    assert second.points == ((0, 0), (14, 0), (20, 0), (20, 30))


def test_the_longest_shared_way_counts():
    _, _, third = routes_of(
        [(0, 0), (100, 0)],
        [(0, 0), (10, 0), (10, 50), (100, 50)],
        [(0, 0), (10, 0), (10, 50), (60, 50), (60, 90)],
    )
    assert third.taps == ((54, 50),)
    assert third.num_shared_points == 4


def test_places_where_earlier_lines_split_are_no_corners_for_later_ones():
    _, _, third = routes_of(
        [(0, 0), (100, 0)],
        [(0, 0), (20, 0), (20, 50), (100, 50)],
        [(0, 0), (20, 0), (20, 90), (100, 90)],
    )
    assert third.taps == ((20, 44),)
    assert third.num_shared_points == 3


def test_lines_of_different_sources_share_nothing():
    ways = [Way(Arrow(arrow_id=index, source=index, target=9), index, [(0, 0), (40, 0)]) for index in range(2)]
    assert all(not route.taps for route in make_routes(ways, is_curved=False, direction="lr"))


def joined(*ways, inferred=False):
    """Return routes of lines from sources of their own into one target."""
    arrows = [Arrow(arrow_id=index, source=index, target=99, inferred=inferred and not index) for index in range(9)]
    found = [Way(arrow, arrow.source, list(way)) for arrow, way in zip(arrows, ways, strict=False)]
    return make_routes(found, is_curved=False, direction="lr")


def test_lines_to_one_place_end_on_the_longest():
    inner, outer, front = joined([(0, 30), (50, 30), (50, 8)], [(0, 60), (50, 60), (50, 8)], [(0, 0), (40, 0)])
    assert outer.num_joined_points == front.num_joined_points == 0
    assert inner.num_joined_points == 2
    assert inner.points == ((0, 30), (50, 30), (50, 24), (50, 8))


def test_lines_from_both_sides_have_a_head_each():
    routes = joined([(0, -30), (50, -30), (50, -8)], [(0, 30), (50, 30), (50, 8)])
    assert [route.num_joined_points for route in routes] == [0, 0]


def test_a_line_that_was_guessed_joins_no_other():
    routes = joined([(0, 30), (50, 30), (50, 8)], [(0, 60), (50, 60), (50, 8)], inferred=True)
    assert [route.num_joined_points for route in routes] == [0, 0]


def test_a_stretch_too_short_for_a_curve_and_a_head_is_drawn_whole():
    routes = joined([(0, 18), (50, 18), (50, 8)], [(0, 60), (50, 60), (50, 8)])
    assert [route.num_joined_points for route in routes] == [0, 0]
