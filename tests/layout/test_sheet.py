from neural_flow.drawing import Arrow
from neural_flow.layout.sheet import make_routes


def routes_of(*ways):
    arrows = [(Arrow(arrow_id=index, source=0, target=index + 1), 0, list(way)) for index, way in enumerate(ways)]
    return make_routes(arrows, is_curved=False, direction="lr")


def test_a_line_that_bends_off_splits_at_its_corner():
    _, second = routes_of([(0, 0), (40, 0)], [(0, 0), (10, 0), (10, 20), (50, 20)])
    assert second.taps == ((10, 0),)
    assert second.points[second.num_shared_points - 1] == (10, 0)


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
    assert third.taps == ((60, 50),)
    assert third.num_shared_points == 4


def test_lines_of_different_sources_share_nothing():
    ways = [(Arrow(arrow_id=index, source=index, target=9), index, [(0, 0), (40, 0)]) for index in range(2)]
    assert all(not route.taps for route in make_routes(ways, is_curved=False, direction="lr"))
