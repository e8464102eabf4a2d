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

// spare is how much longer than its bytes take a cell may take. Only a hanging server reaches it.
const spare = 3 * time.Minute

// shortCells take half a minute each, longer than the timeouts of the server.
func shortCells() []*cell {
	const take = 35 * time.Second
	return []*cell{
		{260_000, &kinds[1], thirtyLists, take},
		{110_000, &kinds[2], listsWatch, take},
		{60_000, &kinds[1], initial, take},
		{60_000, &kinds[4], oneList, take},
		{30_000, &kinds[0], oneList, take},
		{30_000, &kinds[1], uploads, take},
		{110_000, &kinds[3], thirtyLists, take},
	}
}

// longCells are all combinations. A list of 4 MB fits into the kernel's buffers, which takes minutes
// to pass on the slowest link.
func longCells() (cells []*cell) {
	for _, rate := range []int{30_000, 60_000, 110_000, 260_000, 800_000} {
		for i := range kinds {
			for _, w := range []*workload{oneList, thirtyLists, listsWatch, initial, uploads} {
				if w.goOnly && strings.HasPrefix(kinds[i].name, "curl") {
					continue
				}
				take := 50 * time.Second
				if w == oneList {
					take = max(take, 4*time.Second*1_000_000/time.Duration(rate))
				}
				cells = append(cells, &cell{rate, &kinds[i], w, take})
			}
		}
	}
	return cells
}

// selected are the cells of the form that the environment asks for.
func selected(t *testing.T) (cells []*cell) {
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
			t.Logf("%s is left out: %v", c, noCurl)
		default:
			cells = append(cells, c)
		}
	}
	return cells
}

// outcome is what became of a cell.
type outcome struct {
	err   error
	took  time.Duration
	conns int64
}

func (o outcome) String() string {
	text := fmt.Sprintf("%.0f s", o.took.Seconds())
	if o.err != nil {
		text = fmt.Sprintf("FAILED after %s: %.160s", text, strings.ReplaceAll(o.err.Error(), "\n", "; "))
	}
	return text
}

// TestSlowClients runs the cells and prints the table. Each has to complete.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	cells := selected(t)
	columns := []string{"ours"}
	flags := map[string][]string{}
	if hasStandard(t) {
		columns, flags["standard"] = append(columns, "standard"), []string{standardFlag + "=standard"}
	} else {
		t.Logf("no column of net/http: the server has no %s", standardFlag)
	}
	outcomes := map[string][]outcome{}
	for _, column := range columns {
		s := startServer(t, cells, append(flags[column], "--feature-gates=WatchList=true")...)
		outcomes[column] = runCells(t, s, cells)
		if err := s.Stop(); err != nil {
			t.Errorf("%s: the server does not end: %v", column, err)
		}
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "cell\ton the link\t%s\n", strings.Join(columns, "\t"))
	for i, c := range cells {
		fmt.Fprintf(table, "%s\t%.0f s", c, c.time.Seconds())
		for _, column := range columns {
			o := outcomes[column][i]
			fmt.Fprintf(table, "\t%s", o)
			if o.err != nil {
				t.Errorf("%s, %s: %v", column, c, o)
			}
			if c.kind.multiplexed && o.err == nil && o.conns != 1 {
				t.Errorf("%s, %s: the client made %d connections", column, c, o.conns)
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // to memory
	t.Logf("\n%s", &b)
}

// mostBytes is what the links that are in use at a time may pass a second. More is work for the CPU, whose
// delays look like those of the links.
const mostBytes = 2_500_000

// runCells runs cells side by side, because each waits for its link.
func runCells(t *testing.T, s *server, cells []*cell) []outcome {
	outcomes := make([]outcome, len(cells))
	var all sync.WaitGroup
	room := semaphore.NewWeighted(mostBytes)
	for i, c := range cells {
		if err := room.Acquire(t.Context(), int64(c.rate)); err != nil {
			t.Fatal(err)
		}
		l := startLink(t, s.addr, c.rate)
		r := &run{c, c.kind.start(t, s.Server, l), s, fmt.Sprintf("cell-%d", i)}
		all.Go(func() {
			defer room.Release(int64(c.rate))
			ctx, cancel := context.WithTimeout(t.Context(), c.time+spare)
			defer cancel()
			start := time.Now()
			err := r.client.connect(ctx)
			if err == nil {
				err = c.workload.run(ctx, r)
			}
			outcomes[i] = outcome{err, time.Since(start), l.conns.Load()}
		})
	}
	all.Wait()
	return outcomes
}
