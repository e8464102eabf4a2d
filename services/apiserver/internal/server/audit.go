package server

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// withAudit records audit events of authenticated requests. reject records the requests that an
// earlier filter rejects.
func (c *Config) withAudit(next http.Handler) http.Handler {
	if c.Audit == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		record := c.openRecord(w, r)
		if record == nil {
			next.ServeHTTP(w, r)
			return
		}
		state := request.FromContext(ctx)
		record.AddDuration(audit.Authentication, state.AuthenticationTime)
		record.AnnotateAll(state.TokenAnnotations)
		if err := record.Receive(ctx); err != nil {
			c.Logger.Error("request rejected: cannot record its audit event", "path", r.URL.Path, "error", err)
			writeInternalError(w, r, errEventNotStored)
			return
		}

		// The record ends with a panic of the handler, or with the response, which may continue after
		// the handler has returned.
		hasReturned := false
		defer func() {
			if hasReturned {
				return
			}
			failure := recover()
			record.End(ctx, failure)
			if failure != nil {
				panic(failure)
			}
		}()
		state.AuditEvent = record
		next.ServeHTTP(&auditedWriter{ResponseWriter: w, record: record, request: r}, r)
		hasReturned = true
		exchange.AtEnd(w, func(failure any) { record.End(ctx, failure) })
	})
}

// openRecord opens the audit record of a request. It returns nil if the policy omits the request.
func (c *Config) openRecord(w http.ResponseWriter, r *http.Request) *audit.Record {
	ctx := r.Context()
	return c.Audit.Open(requestinfo.FromContext(ctx), request.UserFrom(ctx), func() audit.ReceivedRequest {
		return audit.ReceivedRequestOf(r, w.Header().Get("Audit-Id"))
	})
}

// errEventNotStored is the reason of a request's rejection. It has the text of Kubernetes.
var errEventNotStored = errors.New("failed to store audit event")

// reject responds with an error to a request whose user is not known yet.
func (c *Config) reject(w http.ResponseWriter, r *http.Request, err error) {
	c.rejectWith(w, r, func(w http.ResponseWriter, r *http.Request) { c.Responder.Error(w, r, err) })
}

// rejectWith rejects a request before its user is known. respond writes the response.
func (c *Config) rejectWith(w http.ResponseWriter, r *http.Request, respond http.HandlerFunc) {
	if record := c.openRecord(w, r); record != nil {
		record.SetUnauthenticated()
		state := request.FromContext(r.Context())
		record.AnnotateAll(state.TokenAnnotations)
		defer record.Close()
		state.AuditEvent = record
		w = &auditedWriter{ResponseWriter: w, record: record, request: r}
	}
	respond(w, r)
}

// auditedWriter notifies an audit record when the response starts.
type auditedWriter struct {
	http.ResponseWriter
	record  *audit.Record
	request *http.Request
	started bool
}

// recordStart notifies the record of the status code, once.
func (w *auditedWriter) recordStart(code int) {
	if !w.started {
		w.started = true
		w.record.BeginResponse(w.request.Context(), code)
	}
}

func (w *auditedWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols { // other 1xx responses are informational
		w.recordStart(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *auditedWriter) Write(b []byte) (int, error) {
	w.recordStart(http.StatusOK)
	start := time.Now()
	n, err := w.ResponseWriter.Write(b)
	w.record.AddDuration(audit.Writing, time.Since(start))
	return n, err
}

func (w *auditedWriter) Flush() {
	w.recordStart(http.StatusOK)
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Send implements exchange.Sender.
func (w *auditedWriter) Send(b []byte) error {
	w.recordStart(http.StatusOK)
	start := time.Now()
	err := exchange.Send(w.ResponseWriter, b)
	w.record.AddDuration(audit.Writing, time.Since(start))
	return err
}

// Hijack serves upgrades.
func (w *auditedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.recordStart(http.StatusSwitchingProtocols)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap serves http.ResponseController.
func (w *auditedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
