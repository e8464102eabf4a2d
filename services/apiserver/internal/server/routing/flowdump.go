package routing

import (
	"net/http"
	"strings"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

const flowDumpPrefix = "/debug/api_priority_and_fairness/"

// serveFlowDump serves the debug dumps of flow control.
func serveFlowDump(w http.ResponseWriter, r *http.Request, controller *flowcontrol.Controller) {
	var dump strings.Builder
	var err error
	switch strings.TrimPrefix(r.URL.Path, flowDumpPrefix) {
	case "dump_priority_levels":
		err = controller.DumpLevels(&dump)
	case "dump_queues":
		err = controller.DumpQueues(&dump)
	case "dump_requests":
		err = controller.DumpRequests(&dump, requestinfo.Truthy(r.URL.Query(), "includeRequestDetails"))
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
	_, _ = w.Write([]byte(dump.String())) // fails only if the client is gone
}
