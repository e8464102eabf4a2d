package server

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// audit tells what becomes of requests, from when it is known who asks. Those that do not
// get so far are told by refuse.
func (c *Config) audit(next http.Handler) http.Handler {
	if c.Audit == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		rec := c.record(w, r)
		if rec == nil {
			next.ServeHTTP(w, r)
			return
		}
		took, words := request.WaitsFrom(ctx).Arrival()
		rec.Spent(audit.Authentication, took)
		rec.AnnotateAll(words)
		if err := rec.Receive(ctx); err != nil {
			c.Logger.Error("a request is refused because it cannot be audited", "path", r.URL.Path, "error", err)
			undecided(w, r, errNotStored)
			return
		}
		told := false
		defer func() {
			if told {
				return
			}
			failure := recover()
			rec.Ends(ctx, failure)
			if failure != nil {
				panic(failure)
			}
		}()
		if !audit.Attach(ctx, rec) {
			r = r.WithContext(audit.With(ctx, rec))
		}
		next.ServeHTTP(&auditedWriter{ResponseWriter: w, rec: rec, r: r}, r)
		told = true
		serving.AtEnd(w, func(failure any) { rec.Ends(ctx, failure) })
	})
}

// record opens the record of a request, nil when nothing is told of it.
func (c *Config) record(w http.ResponseWriter, r *http.Request) *audit.Record {
	ctx := r.Context()
	return c.Audit.Open(requestinfo.From(ctx), request.UserFrom(ctx), func() audit.Arrival { return audit.Arrived(r, w.Header().Get("Audit-Id")) })
}

// errNotStored has the words of Kubernetes.
var errNotStored = errors.New("failed to store audit event")

// refuse answers a request with an error before it is known who asks.
func (c *Config) refuse(w http.ResponseWriter, r *http.Request, err error) {
	c.refuseBy(w, r, func(w http.ResponseWriter, r *http.Request) { c.Responder.Error(w, r, err) })
}

// refuseBy has answer do so.
func (c *Config) refuseBy(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	if rec := c.record(w, r); rec != nil {
		rec.Refuse()
		_, words := request.WaitsFrom(r.Context()).Arrival()
		rec.AnnotateAll(words)
		defer rec.Close()
		if !audit.Attach(r.Context(), rec) {
			r = r.WithContext(audit.With(r.Context(), rec))
		}
		w = &auditedWriter{ResponseWriter: w, rec: rec, r: r}
	}
	answer(w, r)
}

// auditedWriter tells a record when the answer begins.
type auditedWriter struct {
	http.ResponseWriter
	rec   *audit.Record
	r     *http.Request
	begun bool
}

func (w *auditedWriter) begin(code int) {
	if !w.begun {
		w.begun = true
		w.rec.Begins(w.r.Context(), code)
	}
}

func (w *auditedWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols { // others announce the answer
		w.begin(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *auditedWriter) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	at := time.Now()
	n, err := w.ResponseWriter.Write(b)
	w.rec.Spent(audit.Writing, time.Since(at))
	return n, err
}

func (w *auditedWriter) Flush() {
	w.begin(http.StatusOK)
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Send implements serving.Sender.
func (w *auditedWriter) Send(b []byte) error {
	w.begin(http.StatusOK)
	at := time.Now()
	err := serving.Send(w.ResponseWriter, b)
	w.rec.Spent(audit.Writing, time.Since(at))
	return err
}

// Hijack serves upgrades.
func (w *auditedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.begin(http.StatusSwitchingProtocols)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap serves http.ResponseController.
func (w *auditedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
