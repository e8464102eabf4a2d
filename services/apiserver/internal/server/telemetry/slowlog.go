package telemetry

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// defaultSlow is the default of Filters.Slow, as in Kubernetes.
const defaultSlow = 500 * time.Millisecond

// logSlow logs the steps of a slow request in the format of Kubernetes ("Trace[...]"). Long-running
// requests never count as slow.
func (f *Filters) logSlow(w http.ResponseWriter, r *http.Request, op *requestinfo.Info, start time.Time, took time.Duration) {
	name := operationNames[op.Verb]
	if took < cmp.Or(f.Slow, defaultSlow) || name == "" || op.Target == nil || op.LongRunning() {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Trace[%d]: %q ", rand.Int32(), name)
	for i, a := range operationAttributes(w, r, op) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(a.name + ":" + a.value)
	}
	fmt.Fprintf(&b, " (%s) (total time: %dms)", start.Format("02-Jan-2006 15:04:05.000"), took.Milliseconds())
	var steps []string
	last := start
	waits := request.FromContext(r.Context()).WaitTimes
	for _, s := range waits.Steps() {
		steps = append(steps, fmt.Sprintf("%q %dms (%s)", s.Name, s.Time.Sub(last).Milliseconds(), s.Time.Format("15:04:05.000")))
		last = s.Time
	}
	f.Logger.Info(b.String(), "waited", waits.Sum(), "steps", strings.Join(steps, ", "))
}
