// Package width computes the width of requests from the state of the cache: of a list from the
// number of objects that it examines, of a write from the number of watchers that it notifies.
package width

import (
	"net/url"
	"strconv"
	"time"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

const (
	// objectsPerSeat and watchersPerSeat are as in Kubernetes.
	objectsPerSeat  = 100
	watchersPerSeat = 10
	// deliverySeatTime is how long the final seats of a write are occupied.
	deliverySeatTime = 5 * time.Millisecond
)

// Estimate returns the width of a request, with at most maximum seats. Only requests that read many
// objects or notify many watchers are wider than one seat.
func Estimate(info *requestinfo.Info, maximum int) flowcontrol.Width {
	width := flowcontrol.Width{Seats: 1}
	if info.Target == nil || info.Target.Store == nil || info.Sub != nil && info.Sub.Connect {
		return width
	}
	switch info.Verb {
	case "list", "deletecollection":
		width.Seats = seatsFor(examinedObjects(info, info.Query, maximum*objectsPerSeat), objectsPerSeat, maximum)
	case "watch":
		if sendsInitialObjects(info.Query) {
			width.Seats = seatsFor(examinedObjects(info, info.Query, maximum*objectsPerSeat), objectsPerSeat, maximum)
		}
	case "create", "update", "patch", "delete":
		if woken := info.Target.Store.WakeCount(info.Namespace, info.Name); woken > 0 {
			finalSeats := seatsFor(woken, watchersPerSeat, woken)
			width.Final = min(finalSeats, maximum)
			// Fewer seats for longer are the same work.
			width.AdditionalLatency = time.Duration(float64(deliverySeatTime) * float64(finalSeats) / float64(width.Final))
		}
	}
	return width
}

// sendsInitialObjects reports whether a watch starts with all existing objects.
func sendsInitialObjects(q url.Values) bool {
	if v := q.Get("sendInitialEvents"); v != "" {
		return requestinfo.Truthy(q, "sendInitialEvents")
	}
	v := q.Get("resourceVersion")
	return v == "" || v == "0"
}

// examinedObjects returns how many objects a list examines, at most maximum. A page without
// selectors ends at its limit.
func examinedObjects(info *requestinfo.Info, values url.Values, maximum int) int {
	sel := objects.Selection{Namespace: info.Namespace, Name: info.Name, ExcludeCorrupt: true}
	if info.FieldSelector != "" && !info.TooManySelectorTerms() {
		if s, err := info.OwnSelectors().Fields(); err == nil {
			sel.Fields = s
		}
	}
	if info.LabelSelector != "" && !info.TooManySelectorTerms() {
		if s, err := info.OwnSelectors().Labels(); err == nil {
			sel.Labels = s
		}
	}
	n := info.Target.Store.Snapshot().InspectedCount(sel, maximum)
	if limit, err := strconv.Atoi(values.Get("limit")); err == nil && limit > 0 && info.FieldSelector == "" && info.LabelSelector == "" {
		n = min(n, limit)
	}
	return n
}

// seatsFor returns the seats of n units of work: one for each perSeat units, at least 1, at most
// maximum.
func seatsFor(n, perSeat, maximum int) int {
	return min(max((n+perSeat-1)/perSeat, 1), max(maximum, 1))
}
