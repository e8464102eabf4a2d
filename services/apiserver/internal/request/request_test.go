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

// TestWarningsAreUniqueAndLimited checks that equal warnings are sent once, and that their total size
// is limited.
func TestWarningsAreUniqueAndLimited(t *testing.T) {
	ctx, warnings := requesttest.WithWarnings(context.Background())
	for range 3 {
		request.Warn(ctx, `say "hi"`)
	}
	if got, want := warnings.Headers(), []string{`299 - "say \"hi\""`}; !slices.Equal(got, want) {
		t.Errorf("after 3 equal warnings: got headers %q, want %q", got, want)
	}
	for i := range 100 {
		request.Warn(ctx, strings.Repeat("x", 100)+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	total := 0
	for _, h := range warnings.Headers() {
		total += len(h)
	}
	if total > 8<<10 {
		t.Errorf("got %d bytes of warnings, want at most %d", total, 8<<10)
	}
	request.Warn(context.Background(), "without a collection")
}

// TestWarningsAreTruncated checks that warnings of more than 4096 characters together are cut to 256
// characters each.
func TestWarningsAreTruncated(t *testing.T) {
	text := func(n, i int) string { return fmt.Sprintf("%0*d", n, i) }
	for name, test := range map[string]struct {
		lengths []int // of the warnings
		want    []int // of the headers
	}{
		"no warnings":                       {},
		"at the limit":                      {lengths: []int{4000, 96}, want: []int{4000, 96}},
		"one character over the limit":      {lengths: []int{4000, 97}, want: []int{256, 97}},
		"warnings after the limit":          {lengths: []int{4000, 97, 300, 10}, want: []int{256, 97, 256, 10}},
		"cut warnings fill the limit":       {lengths: slices.Repeat([]int{1000}, 30), want: slices.Repeat([]int{256}, 16)},
		"short warnings fill the limit":     {lengths: slices.Repeat([]int{100}, 60), want: slices.Repeat([]int{100}, 41)},
		"one warning longer than the limit": {lengths: []int{5000}, want: []int{256}},
	} {
		ctx, warnings := requesttest.WithWarnings(t.Context())
		for i, n := range test.lengths {
			request.Warn(ctx, text(n, i))
		}
		var got []int
		for _, h := range warnings.Headers() {
			got = append(got, len(h)-len(`299 - ""`))
		}
		if !slices.Equal(got, test.want) || len(test.want) == 0 && warnings.Headers() != nil {
			t.Errorf("%s: warnings of lengths %d: got lengths %d, want %d", name, test.lengths, got, test.want)
		}
	}
}

// TestWarningsWithControlCharactersAreDropped checks that a text that no header can hold is dropped,
// as in Kubernetes.
func TestWarningsWithControlCharactersAreDropped(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb":     "",
		"a\nb":     "",
		"a\x00":    "",
		"\x7f":     "",
		"~\u0080":  "",
		"\xff":     "",
		"":         "",
		" ":        `299 - " "`,
		"ä€":       `299 - "ä€"`,
		`a "b" \c`: `299 - "a \"b\" \\c"`,
	} {
		ctx, w := requesttest.WithWarnings(t.Context())
		request.Warn(ctx, text)
		if got := strings.Join(w.Headers(), "|"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
