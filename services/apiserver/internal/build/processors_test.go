package build

import "testing"

func TestThreads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, machine, want int }{
		{1, 1, 2}, {1, 8, 2}, {2, 2, 4}, {2, 8, 3}, {3, 3, 4}, {4, 4, 5},
	} {
		if got := threads(c.n, c.machine); got != c.want {
			t.Errorf("%d of %d processors have %d threads, want %d", c.n, c.machine, got, c.want)
		}
	}
}
