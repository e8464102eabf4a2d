package routing

import (
	"net/http"
	"strings"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

const flowDumpPrefix = "/debug/api_priority_and_fairness/"

// serveFlowDump serves the debug dumps of flow control.
func serveFlowDump(w http.ResponseWriter, r *http.Request, c *flowcontrol.Controller) {
	var b strings.Builder
	var err error
	switch strings.TrimPrefix(r.URL.Path, flowDumpPrefix) {
	case "dump_priority_levels":
		err = c.DumpLevels(&b)
	case "dump_queues":
		err = c.DumpQueues(&b)
	case "dump_requests":
		err = c.DumpRequests(&b, requestinfo.Truthy(r.URL.Query(), "includeRequestDetails"))
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(b.String())) // fails only if the client is gone
}
