package slowclients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/semaphore"
)

// extraTime is the time that a cell may take beyond the transfer of its bytes. Only a hanging
// server reaches it.
const extraTime = 3 * time.Minute

// shortCells returns cells of half a minute each, which is longer than the timeouts of the server.
func shortCells() []*cell {
	const linkTime = 35 * time.Second
	return []*cell{
		{rate: 260_000, kind: &clientKinds[1], workload: listThirtyTimes, linkTime: linkTime},
		{rate: 110_000, kind: &clientKinds[2], workload: listAndWatch, linkTime: linkTime},
		{rate: 60_000, kind: &clientKinds[1], workload: watchInitialEvents, linkTime: linkTime},
		{rate: 60_000, kind: &clientKinds[4], workload: listOnce, linkTime: linkTime},
		{rate: 30_000, kind: &clientKinds[0], workload: listOnce, linkTime: linkTime},
		{rate: 30_000, kind: &clientKinds[1], workload: uploadObject, linkTime: linkTime},
		{rate: 110_000, kind: &clientKinds[3], workload: listThirtyTimes, linkTime: linkTime},
	}
}

// longCells returns all combinations. A single list has at least 4 MB, which exceeds the kernel's
// buffers and takes minutes on the slowest link.
func longCells() (cells []*cell) {
	for _, rate := range []int{30_000, 60_000, 110_000, 260_000, 800_000} {
		for i := range clientKinds {
			for _, w := range []*workload{listOnce, listThirtyTimes, listAndWatch, watchInitialEvents, uploadObject} {
				if w.goOnly && strings.HasPrefix(clientKinds[i].name, "curl") {
					continue
				}
				linkTime := 50 * time.Second
				if w == listOnce {
					linkTime = max(linkTime, 4*time.Second*1_000_000/time.Duration(rate))
				}
				cells = append(cells, &cell{rate, &clientKinds[i], w, linkTime})
			}
		}
	}
	return cells
}

// selectedCells returns the cells that the environment selects.
func selectedCells(t *testing.T) (cells []*cell) {
	all := shortCells()
	if os.Getenv("BINNACLE_SLOWCLIENTS") == "long" {
		all = longCells()
	}
	only, err := regexp.Compile(os.Getenv("BINNACLE_SLOWCLIENTS_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	_, noCurl := exec.LookPath("curl")
	for _, c := range all {
		switch {
		case !only.MatchString(c.String()):
		case noCurl != nil && strings.HasPrefix(c.kind.name, "curl"):
			t.Logf("skipping %s: %v", c, noCurl)
		default:
			cells = append(cells, c)
		}
	}
	return cells
}

// cellResult is the result of a cell.
type cellResult struct {
	err      error
	duration time.Duration
	conns    int64
}

func (o cellResult) String() string {
	text := fmt.Sprintf("%.0f s", o.duration.Seconds())
	if o.err != nil {
		text = fmt.Sprintf("FAILED after %s: %.160s", text, strings.ReplaceAll(o.err.Error(), "\n", "; "))
	}
	return text
}

// TestEachWorkloadCompletesForSlowClients runs the cells and prints the table. Each cell must
// complete.
func TestEachWorkloadCompletesForSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	cells := selectedCells(t)
	columns := []string{"ours"}
	flags := map[string][]string{}
	if hasStandardServer(t) {
		columns, flags["standard"] = append(columns, "standard"), []string{standardFlag + "=standard"}
	} else {
		t.Logf("no column for net/http: the server has no flag %s", standardFlag)
	}
	outcomes := map[string][]cellResult{}
	for _, column := range columns {
		s := startServer(t, cells, append(flags[column], "--feature-gates=WatchList=true")...)
		outcomes[column] = runCells(t, s, cells)
		if err := s.Stop(); err != nil {
			t.Errorf("%s: stop the server: %v", column, err)
		}
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "cell\ton the link\t%s\n", strings.Join(columns, "\t"))
	for i, cell := range cells {
		fmt.Fprintf(table, "%s\t%.0f s", cell, cell.linkTime.Seconds())
		for _, column := range columns {
			o := outcomes[column][i]
			fmt.Fprintf(table, "\t%s", o)
			if o.err != nil {
				t.Errorf("%s, %s: %v", column, cell, o)
			}
			if cell.kind.multiplexed && o.err == nil && o.conns != 1 {
				t.Errorf("%s, %s: got %d connections, want 1", column, cell, o.conns)
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // to memory
	t.Logf("\n%s", &b)
}

// maxBytesPerSecond bounds the total rate of the links in use. At higher rates CPU delays would
// look like delays of the links.
const maxBytesPerSecond = 2_500_000

// runCells runs cells concurrently, because each waits for its link.
func runCells(t *testing.T, s *server, cells []*cell) []cellResult {
	outcomes := make([]cellResult, len(cells))
	var all sync.WaitGroup
	limit := semaphore.NewWeighted(maxBytesPerSecond)
	for i, next := range cells {
		if err := limit.Acquire(t.Context(), int64(next.rate)); err != nil {
			t.Fatal(err)
		}
		link := newLink(t, s.addr, next.rate)
		r := &cellRun{next, next.kind.start(t, s.Server, link), s, fmt.Sprintf("cell-%d", i)}
		all.Go(func() {
			defer limit.Release(int64(next.rate))
			ctx, cancel := context.WithTimeout(t.Context(), next.linkTime+extraTime)
			defer cancel()
			start := time.Now()
			err := r.client.connect(ctx)
			if err == nil {
				err = next.workload.run(ctx, r)
			}
			outcomes[i] = cellResult{err, time.Since(start), link.conns.Load()}
		})
	}
	all.Wait()
	return outcomes
}
