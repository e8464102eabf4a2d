package request_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

func TestWarningsAreUniqueAndLimited(t *testing.T) {
	ctx, w := requesttest.WithWarnings(context.Background())
	for range 3 {
		request.Warn(ctx, `say "hi"`+"\r\nX: y")
	}
	if got := w.Headers(); len(got) != 1 || got[0] != `299 - "say \"hi\"  X: y"` {
		t.Errorf("got headers %q", got)
	}
	for i := range 100 {
		request.Warn(ctx, strings.Repeat("x", 100)+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	total := 0
	for _, h := range w.Headers() {
		total += len(h)
	}
	if total > 8<<10 {
		t.Errorf("got %d bytes of warnings, want at most %d", total, 8<<10)
	}
	request.Warn(context.Background(), "without a collection")
}

// Warnings of more than 4096 characters together are cut to 256 characters each.
func TestWarningsAreTruncated(t *testing.T) {
	text := func(n, i int) string { return fmt.Sprintf("%0*d", n, i) }
	for name, c := range map[string]struct {
		lengths []int // of the warnings
		want    []int // of the headers
	}{
		"none":                {},
		"as much as fits":     {[]int{4000, 96}, []int{4000, 96}},
		"one more":            {[]int{4000, 97}, []int{256, 97}},
		"and then":            {[]int{4000, 97, 300, 10}, []int{256, 97, 256, 10}},
		"until all is used":   {slices.Repeat([]int{1000}, 30), slices.Repeat([]int{256}, 16)},
		"many that are short": {slices.Repeat([]int{100}, 60), slices.Repeat([]int{100}, 41)},
		"one that is long":    {[]int{5000}, []int{256}},
	} {
		ctx, w := requesttest.WithWarnings(t.Context())
		for i, n := range c.lengths {
			request.Warn(ctx, text(n, i))
		}
		var got []int
		for _, h := range w.Headers() {
			got = append(got, len(h)-len(`299 - ""`))
		}
		if !slices.Equal(got, c.want) || len(c.want) == 0 && w.Headers() != nil {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestWarningCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\rc\nd": "a b c d", "a\x00b\x1fc\x7fd": "abcd", "ä€": "ä€", "": "", "\x01\x7f": "", " ": " ", "~\u0080": "~\u0080",
	} {
		ctx, w := requesttest.WithWarnings(t.Context())
		request.Warn(ctx, text)
		if got := strings.Join(w.Headers(), "|"); got != want && got != `299 - "`+want+`"` || (want == "") != (got == "") {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
