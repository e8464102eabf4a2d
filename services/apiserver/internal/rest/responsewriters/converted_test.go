package responsewriters

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// formOf returns a form whose documents serve converts.
func formOf(c *Conversions, serve func(ctx context.Context, stored [][]byte) ([][]byte, error)) *Encoder {
	return &Encoder{
		res:     &apiset.Resource{Kind: &registry.Kind{Document: &registry.Document{ConversionWebhook: true, ToServed: serve}}},
		writers: &Responses{Conversions: c},
	}
}

// asPrincipal returns a context of a request of a principal.
func asPrincipal(ctx context.Context, name string) context.Context {
	ctx, s := request.Derive(ctx)
	s.Principal = name
	return ctx
}

// TestConversionEndsWithoutRequests checks that a conversion runs as long as a request waits for
// it.
func TestConversionEndsWithoutRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, canceled int
		f := formOf(NewConversions(ConversionBounds{}), func(ctx context.Context, _ [][]byte) ([][]byte, error) {
			calls++
			<-ctx.Done()
			canceled++
			return nil, ctx.Err()
		})
		e := []*objects.Entry{objects.Uncached("/a", []byte("{}"))}
		wait := func() (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, _, err := f.writers.Conversions.acquireDocuments(ctx, f, e); err == nil {
					t.Error("a canceled conversion has a result")
				}
			}()
			synctest.Wait()
			return func() { cancel(); <-done; synctest.Wait() }
		}
		first, second := wait(), wait()
		first()
		if calls != 1 || canceled != 0 {
			t.Errorf("%d calls, %d canceled while a request waits, want 1 and 0", calls, canceled)
		}
		second()
		if calls != 1 || canceled != 1 {
			t.Errorf("%d calls, %d canceled without requests, want 1 and 1", calls, canceled)
		}
		wait()()
		if calls != 2 || canceled != 2 {
			t.Errorf("%d calls, %d canceled after another request, want 2 and 2", calls, canceled)
		}
	})
}

// largeForm returns a form whose webhook returns documents of 800 KiB.
func largeForm(c *Conversions) *Encoder {
	return formOf(c, func(context.Context, [][]byte) ([][]byte, error) { return [][]byte{make([]byte, 800<<10)}, nil })
}

// smallEntry returns an entry with a small stored object.
func smallEntry(key string) *objects.Entry { return objects.Uncached(key, []byte("{}")) }

// TestConvertedDocumentsAreBounded checks that responses of a principal hold half of the limit at
// most. Each document counts as an eighth of it.
func TestConvertedDocumentsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConversions(ConversionBounds{Stored: 1 << 20, MaxDocuments: 2 << 20})
		prepared := 0
		prepare := func(principal string) *Encoder {
			f := largeForm(c)
			go func() {
				err := f.ConvertEntries(asPrincipal(t.Context(), principal), []*objects.Entry{smallEntry("/a")})
				if err != nil || len(f.docs) != 1 {
					t.Errorf("%s: got %d documents and error %v, want 1", principal, len(f.docs), err)
				}
				prepared++
			}()
			synctest.Wait()
			return f
		}
		var forms []*Encoder
		for range 5 {
			forms = append(forms, prepare("a"))
		}
		if prepared != 4 {
			t.Errorf("%d responses of a principal hold documents, want 4", prepared)
		}
		forms = append(forms, prepare("b"))
		if prepared != 5 {
			t.Errorf("with another principal: got %d prepared responses, want 5: it does not wait", prepared)
		}
		forms[0].ReleaseConverted()
		synctest.Wait()
		if prepared != 6 {
			t.Error("the fifth response waits after the first one")
		}
		for _, f := range forms {
			f.ReleaseConverted()
		}
		if n := c.converted.InUse() + c.stored.InUse(); n != 0 {
			t.Errorf("%d bytes are held at the end, want 0", n)
		}
	})
}

// TestDocumentsOfEndedRequestAreReleased checks a request that ends after it was admitted, while it
// waits for its seats.
func TestDocumentsOfEndedRequestAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConversions(ConversionBounds{Stored: 1 << 20, MaxDocuments: 2 << 20})
		var holding []*Encoder
		for range 4 {
			f := largeForm(c)
			if err := f.ConvertEntries(asPrincipal(t.Context(), "a"), []*objects.Entry{smallEntry("/a")}); err != nil {
				t.Fatal(err)
			}
			holding = append(holding, f)
		}
		ended := errors.New("the request ended while it waits for its seats")
		ctx, s := request.Derive(asPrincipal(t.Context(), "a"))
		s.Work = &requesttest.Work{
			OnReleaseSeats: func(bool) (func() error, bool) { return func() error { return ended }, true },
			OnSuspend:      func() func() { return func() {} },
		}
		got := make(chan error, 1)
		go func() { got <- largeForm(c).ConvertEntries(ctx, []*objects.Entry{smallEntry("/b")}) }()
		time.Sleep(time.Second) // in synctest time; the request has released its seats
		for _, f := range holding {
			f.ReleaseConverted()
		}
		if err := <-got; !errors.Is(err, ended) {
			t.Errorf("got error %v, want %v", err, ended)
		}
		if n := c.converted.InUse(); n != 0 {
			t.Errorf("%d bytes are held at the end, want 0", n)
		}
	})
}

// TestConversionsOfOtherPrincipalsAreNotJoined checks that a request does not wait for the share of
// another principal that converts the same entry.
func TestConversionsOfOtherPrincipalsAreNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConversions(ConversionBounds{Stored: 4 << 20})
		proceed := make(chan struct{})
		prepare := func(principal string, e *objects.Entry) error {
			f := formOf(c, func(_ context.Context, stored [][]byte) ([][]byte, error) {
				if len(stored[0]) > 1<<20 {
					<-proceed
				}
				return stored, nil
			})
			return f.ConvertEntries(asPrincipal(t.Context(), principal), []*objects.Entry{e})
		}
		shared := smallEntry("/shared")
		done := make(chan error, 2)
		go func() { done <- prepare("a", objects.Uncached("/large", make([]byte, 2<<20))) }()
		synctest.Wait()
		go func() { done <- prepare("a", shared) }() // waits for the share of a
		synctest.Wait()
		if err := prepare("b", shared); err != nil {
			t.Errorf("another principal: got error %v", err)
		}
		close(proceed)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestFailureOfAnotherRequestIsNotShared checks that an entry that fails a list does not fail a
// request for another entry that joined the conversion of the list.
func TestFailureOfAnotherRequestIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConversions(ConversionBounds{})
		prepare := func(entries ...*objects.Entry) error {
			f := formOf(c, func(_ context.Context, stored [][]byte) ([][]byte, error) {
				time.Sleep(time.Second)
				for _, doc := range stored {
					if string(doc) == "bad" {
						return nil, errors.New("an object is invalid")
					}
				}
				return stored, nil
			})
			return f.ConvertEntries(t.Context(), entries)
		}
		good := smallEntry("/good")
		list := make(chan error, 1)
		go func() { list <- prepare(good, objects.Uncached("/bad", []byte("bad"))) }()
		synctest.Wait()
		if err := prepare(good); err != nil {
			t.Errorf("request for the good object: got error %v", err)
		}
		if err := <-list; err == nil {
			t.Error("the list with the bad object succeeded")
		}
	})
}

// TestConversionPanicFailsWaitingRequests checks that a panic becomes an error of all waiting
// requests.
func TestConversionPanicFailsWaitingRequests(t *testing.T) {
	e, f := &objects.Entry{}, &pendingConversion{}
	b := &batch{
		form:    1,
		entries: []*objects.Entry{e},
		pending: map[*objects.Entry]*pendingConversion{e: f},
		done:    make(chan struct{}),
	}
	c := NewConversions(ConversionBounds{})
	c.running[conversionKey{e, 1, ""}] = f
	c.runBatch(t.Context(), func(context.Context, [][]byte) ([][]byte, error) { panic("a bug") }, b)
	<-b.done
	if f.err == nil || !strings.Contains(f.err.Error(), "panic: a bug") || len(c.running) > 0 {
		t.Errorf("got %v with %d running, want the panic with 0", f.err, len(c.running))
	}
}
