package config

import (
	"strings"
	"testing"

	"binnacle/libs/options"
)

// TestMemoryFlags checks the values and the defaults of the memory flags, and their errors.
func TestMemoryFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ flags, caches, history, wrong string }{
		{caches: "0", history: "0"},
		{flags: "--cache-memory=256Mi", caches: "256Mi", history: "0"},
		{flags: "--cache-memory=1Gi --watch-history-memory=100Mi", caches: "1Gi", history: "100Mi"},
		{flags: "--watch-history-memory=191Mi", caches: "0", history: "191Mi"},
		{
			flags:   "--watch-history-memory=193Mi",
			caches:  "0",
			history: "193Mi",
			wrong:   "--watch-history-memory 193Mi exceeds --cache-memory, which is 192Mi",
		},
		{flags: "--cache-memory=-1", wrong: `"-1" is not a number of bytes`},
		{flags: "--cache-memory=much", wrong: "quantities must match"},
	} {
		var memoryOptions MemoryOptions
		s := &options.Sections{}
		memoryOptions.addFlags(s)
		err := s.Set("memory").Parse(strings.Fields(tc.flags))
		for _, e := range memoryOptions.validate() {
			err = e
		}
		if tc.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s: got %v, want %s", tc.flags, err, tc.wrong)
			}
			continue
		}
		if err != nil || memoryOptions.Caches.String() != tc.caches || memoryOptions.History.String() != tc.history {
			t.Errorf("%s: got caches %s, history %s, error %v, want %s, %s", tc.flags, &memoryOptions.Caches, &memoryOptions.History, err, tc.caches, tc.history)
		}
	}
}
