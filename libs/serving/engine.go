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
	engine := gin.New()
	engine.RedirectTrailingSlash = false
	engine.RedirectFixedPath = false
	engine.ForwardedByClientIP = false
	engine.ContextWithFallback = true
	if err := engine.SetTrustedProxies(nil); err != nil {
		return nil, err
	}
	engine.Use(func(ctx *gin.Context) {
		defer func() {
			if panicValue := recover(); panicValue != nil {
				ctx.Abort()
				handlePanic(log, panicValue, ctx.Writer, ctx.Request, ctx.Writer.Written())
			}
		}()
		ctx.Next()
	})
	return engine, nil
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
