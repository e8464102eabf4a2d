package flowcontrol

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes lines of cells, of which all but the last end with a comma.
func table(w io.Writer, lines [][]string) error {
	t := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	for _, cells := range lines {
		if _, err := fmt.Fprintln(t, strings.Join(cells, ",\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// each calls fn for all levels in the order of their names, under their locks.
func (c *Controller) each(fn func(*level)) {
	if s := c.state.Load(); !s.taken && c.First != nil {
		c.First(context.Background())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.levels))
	for name := range c.levels {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		l := c.levels[name]
		l.mu.Lock()
		fn(l)
		l.mu.Unlock()
	}
}

// DumpLevels writes a line for each priority level.
func (c *Controller) DumpLevels(w io.Writer) error {
	lines := [][]string{{
		"PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
		"DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests",
	}}
	c.each(func(l *level) {
		n := l.counts
		lines = append(lines, texts(l.name, l.busy, l.idle(), l.leaving, l.waiting, l.running, n.dispatched, n.rejected, n.timedOut, n.cancelled))
	})
	return table(w, lines)
}

// DumpQueues writes a line for each queue.
func (c *Controller) DumpQueues(w io.Writer) error {
	lines := [][]string{{
		"PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
	}}
	c.each(func(l *level) {
		for i := range l.queues {
			q := &l.queues[i]
			initial, most := 0, 0
			for _, r := range q.waiting {
				initial, most = initial+r.width.Seats, most+r.width.most()
			}
			lines = append(lines, texts(l.name, i, len(q.waiting), q.running, q.seats, seatSeconds(q.next), initial, most, seatSeconds(q.work)))
		}
	})
	return table(w, lines)
}

// DumpRequests writes a line for each request that waits or runs, on demand with
// what it asks.
func (c *Controller) DumpRequests(w io.Writer, details bool) error {
	header := []string{
		"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
	}
	if details {
		header = append(header, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	lines := [][]string{header}
	c.each(func(l *level) {
		var all []*Request
		for r := l.first; r != nil; r = r.next {
			all = append(all, r)
		}
		slices.SortStableFunc(all, func(a, b *Request) int { return cmp.Or(cmp.Compare(a.queue, b.queue), a.arrived.Compare(b.arrived)) })
		for _, r := range all {
			place := noQueue
			if r.queue != noQueue && r.started.IsZero() {
				place = slices.Index(l.queues[r.queue].waiting, r)
			}
			line := texts(l.name, r.schema.name, r.queue, place, r.flow, stamp(r.arrived), r.width.Seats, r.width.Final, r.width.After, stamp(r.started))
			if details {
				line = append(line, texts(r.user.Name, r.op.Verb, r.op.Path, r.op.Namespace, r.op.Name, r.op.Version, r.op.Resource, r.op.Subresource)...)
			}
			lines = append(lines, line)
		}
	})
	return table(w, lines)
}

// stamp is a time as the dumps have it, with all its digits; what has not begun has that
// of the year 1.
func stamp(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
}

// seatSeconds is an amount of work as the dumps have it.
func seatSeconds(v float64) string { return fmt.Sprintf("%.8fss", v) }

func texts(values ...any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}
