package request

import (
	"context"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Limits of the Warning headers of one response in characters, as in Kubernetes. If all warnings
// together exceed maxWarnings, each is cut to maxWarningWhenCut.
const (
	maxWarnings       = 4 * 1024
	maxWarningWhenCut = 256
)

// warningCode is the code of all warnings: a miscellaneous persistent warning (RFC 7234, section
// 5.5.7).
const warningCode = 299

// Warnings collects the texts of Warning headers, without duplicates and bounded in size.
type Warnings struct {
	mu    sync.Mutex
	texts []string
	seen  map[string]bool
	// length is the total length of all texts in characters, after cutting.
	length int
	cut    bool
}

// Warn adds a warning to the response of the request.
func Warn(ctx context.Context, text string) {
	if warnings := FromContext(ctx).Warnings; warnings != nil {
		warnings.add(text)
	}
}

// CheckpointWarnings returns a function that removes the warnings added after this call. It is for
// a write that is repeated because of a conflict with a concurrent write.
func CheckpointWarnings(ctx context.Context) (rollback func()) {
	warnings := FromContext(ctx).Warnings
	if warnings == nil {
		return func() {}
	}
	warnings.mu.Lock()
	defer warnings.mu.Unlock()
	texts, length, cut := slices.Clone(warnings.texts), warnings.length, warnings.cut
	seen := maps.Clone(warnings.seen)
	return func() {
		warnings.mu.Lock()
		defer warnings.mu.Unlock()
		warnings.texts = texts
		warnings.seen = seen
		warnings.length = length
		warnings.cut = cut
	}
}

// add adds a warning, cut to its maximum length. Repetitions are dropped, and so are texts that no
// header can hold, because they contain control characters or are not UTF-8.
func (w *Warnings) add(text string) {
	// A longer text is cut in any case.
	if n := (maxWarnings + 1) * utf8.UTFMax; len(text) > n {
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	if _, err := utilnet.NewWarningHeader(warningCode, "", text); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == "" || w.cut && w.length >= maxWarnings || w.seen[text] {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.texts = append(w.texts, text)
	if !w.cut {
		w.length += utf8.RuneCountInString(text)
		if w.length <= maxWarnings {
			return
		}
		// From now on every text is cut, including the earlier ones.
		w.cut = true
		w.length = 0
		for i := range w.texts {
			w.cutText(i)
		}
		return
	}
	w.cutText(len(w.texts) - 1)
}

// cutText cuts the text at index i to maxWarningWhenCut characters and adds its length to w.length.
// The caller holds mu.
func (w *Warnings) cutText(i int) {
	n := utf8.RuneCountInString(w.texts[i])
	if n > maxWarningWhenCut {
		w.texts[i], n = string([]rune(w.texts[i])[:maxWarningWhenCut]), maxWarningWhenCut
	}
	w.length += n
}

// Headers returns the values of the Warning headers (RFC 7234, section 5.5).
func (w *Warnings) Headers() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.texts) == 0 {
		return nil
	}
	out := make([]string, len(w.texts))
	for i, t := range w.texts {
		out[i], _ = utilnet.NewWarningHeader(warningCode, "", t) // add has tried it
	}
	return out
}
