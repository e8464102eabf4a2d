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

// writeTable writes lines of aligned cells, separated by commas.
func writeTable(w io.Writer, lines [][]string) error {
	t := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	for _, cells := range lines {
		if _, err := fmt.Fprintln(t, strings.Join(cells, ",\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// eachLevel calls fn for all levels in the order of their names. It holds the lock of the level.
func (c *Controller) eachLevel(visit func(*level)) {
	if s := c.state.Load(); !s.loaded && c.LoadConfig != nil {
		c.LoadConfig(context.Background())
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
		visit(l)
		l.mu.Unlock()
	}
}

// DumpLevels writes a line for each priority level.
func (c *Controller) DumpLevels(w io.Writer) error {
	lines := [][]string{{
		"PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
		"DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests",
	}}
	c.eachLevel(func(l *level) {
		counts := l.counts
		lines = append(lines,
			formatValues(l.name, l.activeQueues, l.isIdle(),
				l.quiescing, l.waiting, l.running, counts.dispatched, counts.rejected, counts.timedOut, counts.cancelled))
	})
	return writeTable(w, lines)
}

// DumpQueues writes a line for each queue.
func (c *Controller) DumpQueues(writer io.Writer) error {
	lines := [][]string{{
		"PriorityLevelName", "Index", "PendingRequests",
		"ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
	}}
	c.eachLevel(func(l *level) {
		for i := range l.queues {
			q := &l.queues[i]
			initial, maximum := 0, 0
			for _, r := range q.waiting {
				initial += r.width.Seats
				maximum += r.width.maxSeats()
			}
			lines = append(lines,
				formatValues(l.name, i, len(q.waiting), q.running,
					q.seats, formatSeatSeconds(q.nextStart), initial, maximum, formatSeatSeconds(q.work)))
		}
	})
	return writeTable(writer, lines)
}

// DumpRequests writes a line for each running or waiting request. With details a line includes
// user, verb and path.
func (c *Controller) DumpRequests(writer io.Writer, details bool) error {
	header := []string{
		"PriorityLevelName", "FlowSchemaName", "QueueIndex",
		"RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
	}
	if details {
		header = append(header, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	lines := [][]string{header}
	c.eachLevel(func(dumped *level) {
		var all []*Request
		for r := dumped.listHead; r != nil; r = r.next {
			all = append(all, r)
		}
		slices.SortStableFunc(all, func(a, b *Request) int {
			return cmp.Or(cmp.Compare(a.queue, b.queue), a.arrived.Compare(b.arrived))
		})
		for _, r := range all {
			position := noQueue
			if r.queue != noQueue && r.started.IsZero() {
				position = slices.Index(dumped.queues[r.queue].waiting, r)
			}
			line := formatValues(dumped.name, r.schema.name, r.queue,
				position, r.flow, formatTime(r.arrived), r.width.Seats, r.width.Final, r.width.AdditionalLatency, formatTime(r.started))
			if details {
				line = append(line,
					formatValues(r.user.Name, r.info.Verb, r.info.Path,
						r.info.Namespace, r.info.Name, r.info.Version, r.info.Resource, r.info.Subresource)...)
			}
			lines = append(lines, line)
		}
	})
	return writeTable(writer, lines)
}

// formatTime formats a time with nanoseconds. The zero time is in the year 1, as in Kubernetes.
func formatTime(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
}

// formatSeatSeconds formats an amount of work.
func formatSeatSeconds(v float64) string { return fmt.Sprintf("%.8fss", v) }

// formatValues formats the cells of a line.
func formatValues(values ...any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}
