package routing

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
)

const (
	verbosityPath = "/debug/flags/v"
	// maxVerbosityBody bounds the body of a request that sets the verbosity, in bytes.
	maxVerbosityBody = 64
)

// serveVerbosity sets the log level to the number in the body, with the responses of Kubernetes.
func (mux *Mux) serveVerbosity(w http.ResponseWriter, r *http.Request) {
	code, text := mux.setVerbosity(r)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // fails only if the client is gone
}

// setVerbosity sets the log level. It returns the status code and the text of the response.
func (mux *Mux) setVerbosity(r *http.Request) (code int, text string) {
	if r.Method != http.MethodPut {
		return http.StatusNotAcceptable, "unsupported http method"
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxVerbosityBody))
	if err != nil {
		return http.StatusBadRequest, "error reading request body: " + err.Error()
	}
	level, err := strconv.ParseUint(string(body), 10, 31)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	mux.Verbosity(int(level))
	return http.StatusOK, fmt.Sprintf("successfully set klog.logging.verbosity to %s", body)
}
