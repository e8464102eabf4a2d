package webhookclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/request"
)

const (
	// largeAnswer is the size in bytes from which an answer needs a turn to be decoded.
	largeAnswer = request.LargeBody
	// hugeAnswer is that from which it needs a place to be read on, and again how much has to
	// come within slowAnswer, as others may wait for the place.
	hugeAnswer = 1 << 20
	slowAnswer = 3 * time.Second
	// smallAnswer is the size in bytes below which whatever is in an answer costs little.
	smallAnswer = 4 << 10
	// answerPlaces is how many huge answers are read and decoded at a time.
	answerPlaces = 8
)

// Answers are the answers of webhooks of one sort. Huge ones are read a few at a time, so
// that many at once wait for each other instead of adding up, and large ones decoded one after
// the other, so that a processor is left for what else there is to do. Who has a place waits for
// its webhook alone, which has to go on sending, and who decodes for nobody. Of the places one
// webhook has as many as are free.
type Answers struct {
	// Patience is how long somebody who has a place waits for more.
	Patience time.Duration

	decoding sync.Mutex
	places   *Share // by webhook
}

// NewAnswers are those of one server.
func NewAnswers() *Answers { return &Answers{Patience: slowAnswer, places: NewShare(answerPlaces)} }

// Answer is that to one question.
type Answer struct {
	all    *Answers
	who    string
	most   int64
	cancel context.CancelCauseFunc

	// These belong to the goroutine that asks.
	leave   func() // gives its place to others; nil without one
	crowded bool
	late    *time.Timer
}

type answerKey struct{}

var errSlow = errors.New("the answer of the webhook comes too slowly")

// Begin is the context to put a question with, to a client of Direct or Webhooks. The answer
// has so many bytes at most; 0 is what the client allows. End has to be called when it has
// been decoded.
func (a *Answers) Begin(ctx context.Context, who string, most int64) (context.Context, *Answer) {
	answer := &Answer{all: a, who: who, most: most}
	ctx, answer.cancel = context.WithCancelCause(ctx)
	return context.WithValue(ctx, answerKey{}, answer), answer
}

// End gives others its place.
func (a *Answer) End() {
	if a.late != nil {
		a.late.Stop()
	}
	if a.leave != nil {
		a.leave()
		a.leave = nil
	}
	a.cancel(nil)
}

// Crowded tells that there was no place for it in time: that says nothing of its webhook.
func (a *Answer) Crowded() bool { return a.crowded }

// enter waits for a place unless the answer has one.
func (a *Answer) enter(ctx context.Context) error {
	if a == nil {
		return nil
	}
	if a.leave != nil { // and more has come
		a.late.Reset(a.all.Patience)
		return nil
	}
	leave, err := a.all.places.Enter(ctx, a.who)
	if err != nil {
		a.crowded = true
		return fmt.Errorf("too many large answers of webhooks are read already: %w", err)
	}
	a.leave = leave
	a.late = time.AfterFunc(a.all.Patience, func() { a.cancel(errSlow) })
	return nil
}

// Into has decode read what a client got, the body without its error. Answers with more values
// than that are errors, and so are long ones that are no JSON: "{}," takes three bytes there,
// and hundreds here, and in other forms less.
func (a *Answer) Into(result rest.Result, values int, decode func(raw []byte) error) error {
	if a.late != nil {
		a.late.Stop() // it has come
	}
	raw, err := result.Raw()
	if len(raw) >= largeAnswer {
		a.all.decoding.Lock()
		defer a.all.decoding.Unlock()
	}
	bad := Readable(raw, values)
	switch {
	case err != nil && bad == nil:
		return result.Error()
	case err != nil:
		return err
	case bad != nil:
		return bad
	}
	return decode(raw)
}

// ErrManyValues is wrapped in errors of answers that are not decoded, as they have too many values.
var ErrManyValues = errors.New("the answer has too many values")

// Readable refuses what has more values than that, and what is long and no JSON.
func Readable(raw []byte, values int) error {
	if len(raw) < smallAnswer {
		return nil
	}
	if !request.ValuesWithin(raw, values) {
		return fmt.Errorf("%w: at most %d are read", ErrManyValues, values)
	}
	var all json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("json parse error: %w", err)
	}
	return nil
}

// reviewValues is how many values the answer of a service may have that says yes or no.
const reviewValues = 1 << 16

// Decode reads JSON that a service answered. What has so many values that nobody means them is an
// error, and large answers are decoded one after the other. Fields whose names differ by the case of
// letters are others: "Allowed" says nothing of what is allowed.
func (s *Service) Decode(raw []byte, into any) error {
	if len(raw) >= largeAnswer {
		s.decoding.Lock()
		defer s.decoding.Unlock()
	}
	if err := Readable(raw, reviewValues); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// bounded refuses answers that are too long, and has large ones wait for a place.
type bounded struct {
	http.RoundTripper
	most int64
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(whole(r))
	if err == nil {
		of, _ := r.Context().Value(answerKey{}).(*Answer)
		most := b.most
		if of != nil && of.most > 0 {
			most = min(most, of.most)
		}
		answer.Body = &boundedBody{ReadCloser: answer.Body, ctx: r.Context(), of: of, left: most, small: hugeAnswer}
	}
	return answer, err
}

type boundedBody struct {
	io.ReadCloser
	ctx   context.Context
	of    *Answer // nil where nobody counts
	left  int64
	small int64 // what is left until it needs a place, or has to have come
}

// errTooLong is given instead of the rest of an answer.
var errTooLong = errors.New("the answer of the webhook is too long")

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.small -= int64(n)
	if b.left -= int64(n); b.left < 0 {
		return n, errTooLong
	}
	if err != nil && errors.Is(context.Cause(b.ctx), errSlow) { // also at its end, which may be due to our leaving
		return n, errSlow
	}
	if b.small < 0 && b.of != nil {
		b.small = hugeAnswer
		if waited := b.of.enter(b.ctx); waited != nil {
			return n, waited
		}
	}
	return n, err
}
