package responsewriters

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// formOf returns a form whose documents serve converts.
func formOf(c *Conversions, serve func(ctx context.Context, stored [][]byte) ([][]byte, error)) *Form {
	return &Form{
		res:     &apiset.Resource{Kind: &registry.Kind{Document: &registry.Document{Remote: true, Serve: serve}}},
		writers: &Responses{Conversions: c},
	}
}

// asPrincipal returns a context of a request of a principal.
func asPrincipal(ctx context.Context, name string) context.Context {
	ctx, s := request.Derive(ctx)
	s.Principal = name
	return ctx
}

// TestConversionEndsWithoutRequests checks that a conversion runs as long as a request waits for it.
func TestConversionEndsWithoutRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, canceled int
		f := formOf(NewConversions(ConversionBounds{}), func(ctx context.Context, _ [][]byte) ([][]byte, error) {
			calls++
			<-ctx.Done()
			canceled++
			return nil, ctx.Err()
		})
		e := []*watchcache.Entry{watchcache.Uncached("/a", []byte("{}"))}
		wait := func() (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, _, err := f.writers.Conversions.all(ctx, f, e); err == nil {
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

// TestConvertedDocumentsAreBounded checks that responses of a principal hold half of the limit at most.
func TestConvertedDocumentsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConversions(ConversionBounds{Stored: 1 << 20, Converted: 2 << 20})
		serve := func(_ context.Context, stored [][]byte) ([][]byte, error) {
			return [][]byte{make([]byte, 800<<10)}, nil
		}
		prepared := 0
		prepare := func(principal string) *Form {
			f := formOf(c, serve)
			go func() {
				err := f.Prepare(asPrincipal(t.Context(), principal), []*watchcache.Entry{watchcache.Uncached("/a", []byte("{}"))})
				if err != nil || len(f.docs) != 1 {
					t.Errorf("%s: %d documents, %v", principal, len(f.docs), err)
				}
				prepared++
			}()
			synctest.Wait()
			return f
		}
		first := prepare("a")
		second := prepare("a")
		if prepared != 1 || second.docs != nil {
			t.Errorf("%d responses of a principal hold documents, want 1", prepared)
		}
		other := prepare("b")
		if prepared != 2 {
			t.Error("another principal waits")
		}
		first.Finish()
		synctest.Wait()
		if prepared != 3 {
			t.Error("the second response waits after the first one")
		}
		second.Finish()
		other.Finish()
		if n := c.converted.InUse() + c.stored.InUse(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
}

// TestConversionPanicFailsWaitingRequests checks that a panic becomes an error of all waiting
// requests.
func TestConversionPanicFailsWaitingRequests(t *testing.T) {
	e, f := &watchcache.Entry{}, &flight{}
	b := &batch{form: 1, entries: []*watchcache.Entry{e}, flights: map[*watchcache.Entry]*flight{e: f}, done: make(chan struct{})}
	c := NewConversions(ConversionBounds{})
	c.running[conversion{e, 1}] = f
	c.convert(t.Context(), func(context.Context, [][]byte) ([][]byte, error) { panic("a bug") }, b)
	<-b.done
	if f.err == nil || !strings.Contains(f.err.Error(), "panic: a bug") || len(c.running) > 0 {
		t.Errorf("got %v with %d running, want the panic with 0", f.err, len(c.running))
	}
}
