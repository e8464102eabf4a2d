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

// encoderWith returns an encoder whose documents toServed converts.
func encoderWith(c *Conversions, toServed func(ctx context.Context, stored [][]byte) ([][]byte, error)) *Encoder {
	return &Encoder{
		res:     &apiset.Resource{Kind: &registry.Kind{Document: &registry.Document{ConversionWebhook: true, ToServed: toServed}}},
		writers: &Responses{Conversions: c},
	}
}

// asPrincipal returns a context of a request of a principal.
func asPrincipal(ctx context.Context, name string) context.Context {
	ctx, s := request.Derive(ctx)
	s.Principal = name
	return ctx
}

// TestConversionEndsWithoutRequests checks that a conversion runs as long as a request waits for it,
// and is canceled then.
func TestConversionEndsWithoutRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, canceled int
		encoder := encoderWith(NewConversions(ConversionBounds{}), func(ctx context.Context, _ [][]byte) ([][]byte, error) {
			calls++
			<-ctx.Done()
			canceled++
			return nil, ctx.Err()
		})
		entries := []*objects.Entry{objects.Uncached("/a", []byte("{}"))}
		// wait starts a request that waits for the conversion. disconnect ends the request.
		wait := func() (disconnect func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, _, err := encoder.writers.Conversions.acquireDocuments(ctx, encoder, entries); err == nil {
					t.Error("canceled conversion: got no error, want one")
				}
			}()
			synctest.Wait()
			return func() { cancel(); <-done; synctest.Wait() }
		}
		disconnectFirst := wait()
		disconnectSecond := wait()
		disconnectFirst()
		if calls != 1 || canceled != 0 {
			t.Errorf("while the second request waits: got %d calls, %d canceled, want 1, 0", calls, canceled)
		}
		disconnectSecond()
		if calls != 1 || canceled != 1 {
			t.Errorf("after both requests have ended: got %d calls, %d canceled, want 1, 1", calls, canceled)
		}
		disconnectThird := wait()
		disconnectThird()
		if calls != 2 || canceled != 2 {
			t.Errorf("after a third request has started and ended: got %d calls, %d canceled, want 2, 2", calls, canceled)
		}
	})
}

const (
	// maxDocuments is the limit in bytes of the converted documents that responses hold.
	maxDocuments = 2 << 20
	// largeDocument is a size in bytes above the share of the limit that one response claims at most,
	// so that a response with such a document claims exactly this share.
	largeDocument = maxDocuments/convertedShare + 1
	// claimsOfPrincipal is the number of such responses of one principal that hold documents at a
	// time. A principal may hold half of the limit.
	claimsOfPrincipal = convertedShare / 2
)

// largeEncoder returns an encoder whose webhook returns one document of largeDocument bytes.
func largeEncoder(c *Conversions) *Encoder {
	return encoderWith(c, func(context.Context, [][]byte) ([][]byte, error) { return [][]byte{make([]byte, largeDocument)}, nil })
}

// smallEntry returns an entry with a small stored object.
func smallEntry(key string) *objects.Entry { return objects.Uncached(key, []byte("{}")) }

// TestConvertedDocumentsAreBounded checks that responses of a principal hold half of the limit at
// most.
func TestConvertedDocumentsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conversions := NewConversions(ConversionBounds{Stored: 1 << 20, MaxDocuments: maxDocuments})
		converted := 0
		convert := func(principal string) *Encoder {
			e := largeEncoder(conversions)
			go func() {
				err := e.ConvertEntries(asPrincipal(t.Context(), principal), []*objects.Entry{smallEntry("/a")})
				if err != nil || len(e.docs) != 1 {
					t.Errorf("%s: got %d documents and error %v, want 1", principal, len(e.docs), err)
				}
				converted++
			}()
			synctest.Wait()
			return e
		}
		var encoders []*Encoder
		for range claimsOfPrincipal + 1 {
			encoders = append(encoders, convert("a"))
		}
		if converted != claimsOfPrincipal {
			t.Errorf("%d responses of one principal: got %d that hold documents, want %d", claimsOfPrincipal+1, converted, claimsOfPrincipal)
		}
		encoders = append(encoders, convert("b"))
		if converted != claimsOfPrincipal+1 {
			t.Errorf("with a response of another principal: got %d that hold documents, want %d", converted, claimsOfPrincipal+1)
		}
		encoders[0].ReleaseConverted()
		synctest.Wait()
		if converted != claimsOfPrincipal+2 {
			t.Errorf("after the first response was released: got %d that held documents, want %d", converted, claimsOfPrincipal+2)
		}
		for _, encoder := range encoders {
			encoder.ReleaseConverted()
		}
		if n := conversions.converted.InUse() + conversions.stored.InUse(); n != 0 {
			t.Errorf("at the end: got %d bytes held, want 0", n)
		}
	})
}

// TestDocumentsOfEndedRequestAreReleased checks a request that ends after it was admitted, while it
// waits for its seats.
func TestDocumentsOfEndedRequestAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conversions := NewConversions(ConversionBounds{Stored: 1 << 20, MaxDocuments: maxDocuments})
		var holding []*Encoder
		for range claimsOfPrincipal {
			e := largeEncoder(conversions)
			if err := e.ConvertEntries(asPrincipal(t.Context(), "a"), []*objects.Entry{smallEntry("/a")}); err != nil {
				t.Fatal(err)
			}
			holding = append(holding, e)
		}
		ended := errors.New("the request ended while it waits for its seats")
		ctx, s := request.Derive(asPrincipal(t.Context(), "a"))
		s.Work = &requesttest.Work{
			OnReleaseSeats: func(bool) (resume func() error, ok bool) { return func() error { return ended }, true },
			OnSuspend:      func() (resume func()) { return func() {} },
		}
		got := make(chan error, 1)
		go func() { got <- largeEncoder(conversions).ConvertEntries(ctx, []*objects.Entry{smallEntry("/b")}) }()
		time.Sleep(time.Second) // in synctest time; the request has released its seats
		for _, encoder := range holding {
			encoder.ReleaseConverted()
		}
		if err := <-got; !errors.Is(err, ended) {
			t.Errorf("request that ends while it waits: got error %v, want %v", err, ended)
		}
		if n := conversions.converted.InUse(); n != 0 {
			t.Errorf("at the end: got %d bytes held, want 0", n)
		}
	})
}

// TestConversionsOfOtherPrincipalsAreNotJoined checks that a request does not join the conversion of
// its entry by another principal, which waits because that principal has used up its share.
func TestConversionsOfOtherPrincipalsAreNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conversions := NewConversions(ConversionBounds{Stored: 4 << 20})
		proceed := make(chan struct{})
		convert := func(principal string, entry *objects.Entry) error {
			encoder := encoderWith(conversions, func(_ context.Context, stored [][]byte) ([][]byte, error) {
				if len(stored[0]) > 1<<20 {
					<-proceed
				}
				return stored, nil
			})
			return encoder.ConvertEntries(asPrincipal(t.Context(), principal), []*objects.Entry{entry})
		}
		shared := smallEntry("/shared")
		done := make(chan error, 2)
		go func() { done <- convert("a", objects.Uncached("/large", make([]byte, 2<<20))) }()
		synctest.Wait()
		go func() { done <- convert("a", shared) }() // waits, because the large entry takes the whole share of a
		synctest.Wait()
		if err := convert("b", shared); err != nil {
			t.Errorf("another principal: got error %v, want none", err)
		}
		close(proceed)
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("conversion of principal a: got error %v, want none", err)
			}
		}
	})
}

// TestFailureOfAnotherRequestIsNotShared checks that an entry that fails a list does not fail a
// request for another entry that joined the conversion of the list.
func TestFailureOfAnotherRequestIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conversions := NewConversions(ConversionBounds{})
		convert := func(entries ...*objects.Entry) error {
			encoder := encoderWith(conversions, func(_ context.Context, stored [][]byte) ([][]byte, error) {
				time.Sleep(time.Second)
				for _, doc := range stored {
					if string(doc) == "bad" {
						return nil, errors.New("an object is invalid")
					}
				}
				return stored, nil
			})
			return encoder.ConvertEntries(t.Context(), entries)
		}
		good := smallEntry("/good")
		list := make(chan error, 1)
		go func() { list <- convert(good, objects.Uncached("/bad", []byte("bad"))) }()
		synctest.Wait()
		if err := convert(good); err != nil {
			t.Errorf("request for the good object: got error %v, want none", err)
		}
		if err := <-list; err == nil {
			t.Error("list with the bad object: got no error, want one")
		}
	})
}

// TestConversionPanicFailsWaitingRequests checks that a panic becomes an error of all waiting
// requests.
func TestConversionPanicFailsWaitingRequests(t *testing.T) {
	const form = 1
	entry, pending := &objects.Entry{}, &pendingConversion{}
	failing := &batch{
		form:    form,
		entries: []*objects.Entry{entry},
		pending: map[*objects.Entry]*pendingConversion{entry: pending},
		done:    make(chan struct{}),
	}
	conversions := NewConversions(ConversionBounds{})
	conversions.running[conversionKey{entry: entry, form: form}] = pending
	conversions.runBatch(t.Context(), func(context.Context, [][]byte) ([][]byte, error) { panic("a bug") }, failing)
	<-failing.done
	if pending.err == nil || !strings.Contains(pending.err.Error(), "panic: a bug") || len(conversions.running) > 0 {
		t.Errorf("got error %v, %d running conversions, want an error with the panic, 0", pending.err, len(conversions.running))
	}
}
