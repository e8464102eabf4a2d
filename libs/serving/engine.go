package serving

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"

	"binnacle/libs/serving/exchange"
)

const panicMessage = "This request caused the server to panic. Look in the logs for details."

// NewEngine returns a gin engine that recovers from panics, logs only to log, and matches paths
// exactly: it does not redirect.
func NewEngine(log *slog.Logger) (*gin.Engine, error) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.ForwardedByClientIP = false
	e.ContextWithFallback = true
	if err := e.SetTrustedProxies(nil); err != nil {
		return nil, err
	}
	e.Use(func(c *gin.Context) {
		defer func() {
			if panicValue := recover(); panicValue != nil {
				c.Abort()
				handlePanic(log, panicValue, c.Writer, c.Request, c.Writer.Written())
			}
		}()
		c.Next()
	})
	return e, nil
}

// WithRecovery recovers from panics of next. It logs the panic with its stack and responds with a
// 500 Status, or closes the connection if a response has started.
func WithRecovery(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &writeTracker{ResponseWriter: w}
		defer func() {
			if panicValue := recover(); panicValue != nil {
				handlePanic(log, panicValue, w, r, t.written)
			}
		}()
		next.ServeHTTP(t, r)
	})
}

// handlePanic handles a panic of a handler: it logs the panic and writes a 500 Status. If written
// is true, the response has started, and it aborts the response by panicking with
// http.ErrAbortHandler.
func handlePanic(log *slog.Logger, panicValue any, w http.ResponseWriter, r *http.Request, written bool) {
	if detached, started := exchange.CancelDetach(w, panicValue); detached != nil {
		w, written = detached, started
	}
	if err, ok := panicValue.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", panicValue, "stack", string(debug.Stack()))
	if written {
		panic(http.ErrAbortHandler)
	}
	writeStatus(w, http.StatusInternalServerError, "InternalError", panicMessage)
}

// writeTracker records whether a response has started. http.ResponseController reaches the wrapped
// writer through Unwrap.
type writeTracker struct {
	http.ResponseWriter
	written bool
}

func (t *writeTracker) WriteHeader(code int) {
	t.written = t.written || code >= http.StatusOK || code == http.StatusSwitchingProtocols
	t.ResponseWriter.WriteHeader(code)
}

func (t *writeTracker) Write(p []byte) (int, error) {
	t.written = true
	return t.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (t *writeTracker) Flush() {
	t.written = true
	if f, ok := t.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is used by http.ResponseController.
func (t *writeTracker) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// status is a Status object in the field order of Kubernetes. The few responses of this package do
// not need the full type.
type status struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Metadata   struct{} `json:"metadata"`
	Status     string   `json:"status"`
	Message    string   `json:"message"`
	Reason     string   `json:"reason"`
	Code       int      `json:"code"`
}

// writeStatus writes a Kubernetes Status.
func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	body, err := json.Marshal(status{
		Kind: "Status", APIVersion: "v1", Status: "Failure", Message: message, Reason: reason, Code: code,
	})
	if err != nil {
		http.Error(w, message, code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client is gone.
	_, _ = w.Write(body)
}
