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
			if v := recover(); v != nil {
				c.Abort()
				recovered(log, v, c.Writer, c.Request, c.Writer.Written())
			}
		}()
		c.Next()
	})
	return e, nil
}

// recovered logs a panic with its stack and responds with a 500 Status, or closes the connection if a
// response has begun.
func recovered(log *slog.Logger, v any, w http.ResponseWriter, r *http.Request, written bool) {
	if detached, begun := exchange.CancelDetach(w, v); detached != nil {
		w, written = detached, begun
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	if written {
		panic(http.ErrAbortHandler)
	}
	writeStatus(w, http.StatusInternalServerError, "InternalError", panicMessage)
}
