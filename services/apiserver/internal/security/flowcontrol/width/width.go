// Package width computes the width of requests from the state of the cache: that of a list from the
// number of objects that it examines, that of a write from the number of watchers that it notifies.
package width

import (
	"net/url"
	"strconv"
	"time"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

const (
	// objectsPerSeat and watchersPerSeat are as in Kubernetes.
	objectsPerSeat  = 100
	watchersPerSeat = 10
	// perDelivery is how long the final seats of a write are occupied.
	perDelivery = 5 * time.Millisecond
)

// Of returns the width of a request, with at most most seats.
func Of(op *requestinfo.Info, most int) flowcontrol.Width {
	w := flowcontrol.Width{Seats: 1}
	if op.Target == nil || op.Target.Store == nil || op.Sub != nil && op.Sub.Connect {
		return w
	}
	switch op.Verb {
	case "list", "deletecollection":
		w.Seats = seats(list(op, op.Query, most*objectsPerSeat), objectsPerSeat, most)
	case "watch":
		if initial(op.Query) {
			w.Seats = seats(list(op, op.Query, most*objectsPerSeat), objectsPerSeat, most)
		}
	case "create", "update", "patch", "delete":
		if woken := op.Target.Store.Woken(op.Namespace, op.Name); woken > 0 {
			all := seats(woken, watchersPerSeat, woken)
			w.Final = min(all, most)
			// Fewer seats for longer are the same work.
			w.After = time.Duration(float64(perDelivery) * float64(all) / float64(w.Final))
		}
	}
	return w
}

// initial reports whether a watch begins with all existing objects.
func initial(q url.Values) bool {
	if v := q.Get("sendInitialEvents"); v != "" {
		return requestinfo.Truthy(q, "sendInitialEvents")
	}
	v := q.Get("resourceVersion")
	return v == "" || v == "0"
}

// list returns how many objects a list examines, at most most. A page without selectors ends at its
// limit.
func list(op *requestinfo.Info, q url.Values, most int) int {
	sel := watchcache.Selection{Namespace: op.Namespace, Name: op.Name, Readable: true}
	if op.FieldSelector != "" && !op.Crowded() {
		if s, err := op.OwnSelectors().Fields(); err == nil {
			sel.Fields = s
		}
	}
	if op.LabelSelector != "" && !op.Crowded() {
		if s, err := op.OwnSelectors().Labels(); err == nil {
			sel.Labels = s
		}
	}
	n := op.Target.Store.Snapshot().Walked(sel, most)
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && limit > 0 && op.FieldSelector == "" && op.LabelSelector == "" {
		n = min(n, limit)
	}
	return n
}

func seats(n, each, most int) int { return min(max((n+each-1)/each, 1), max(most, 1)) }
