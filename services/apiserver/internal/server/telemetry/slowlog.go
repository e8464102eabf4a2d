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
func (f *Filters) logSlow(w http.ResponseWriter, r *http.Request, info *requestinfo.Info, start time.Time, took time.Duration) {
	name := operationNames[info.Verb]
	if took < cmp.Or(f.Slow, defaultSlow) || name == "" || info.Target == nil || info.LongRunning() {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Trace[%d]: %q ", rand.Int32(), name)
	for i, attribute2 := range operationAttributes(w, r, info) {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(attribute2.name + ":" + attribute2.value)
	}
	fmt.Fprintf(&text, " (%s) (total time: %dms)", start.Format("02-Jan-2006 15:04:05.000"), took.Milliseconds())
	var steps []string
	last := start
	waits := request.FromContext(r.Context()).WaitTimes
	for _, step := range waits.Steps() {
		steps = append(steps, fmt.Sprintf("%q %dms (%s)", step.Name, step.Time.Sub(last).Milliseconds(), step.Time.Format("15:04:05.000")))
		last = step.Time
	}
	f.Logger.Info(text.String(), "waited", waits.Sum(), "steps", strings.Join(steps, ", "))
}
