package config

import (
	"strings"
	"testing"

	"binnacle/libs/options"
)

// TestMemoryFlagsAreParsedAndValidated checks the values and the defaults of the memory flags, and their
// errors.
func TestMemoryFlagsAreParsedAndValidated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ flags, caches, history, wantErr string }{
		{caches: "0", history: "0"},
		{flags: "--cache-memory=256Mi", caches: "256Mi", history: "0"},
		{flags: "--cache-memory=1Gi --watch-history-memory=100Mi", caches: "1Gi", history: "100Mi"},
		{flags: "--watch-history-memory=191Mi", caches: "0", history: "191Mi"},
		{
			flags:   "--watch-history-memory=193Mi",
			caches:  "0",
			history: "193Mi",
			wantErr: "--watch-history-memory 193Mi exceeds --cache-memory, which is 192Mi",
		},
		{flags: "--cache-memory=-1", wantErr: `"-1" is not a number of bytes`},
		{flags: "--cache-memory=much", wantErr: "quantities must match"},
	} {
		var memoryOptions MemoryOptions
		sections := &options.Sections{}
		memoryOptions.addFlags(sections)
		err := sections.Set("memory").Parse(strings.Fields(tc.flags))
		for _, problem := range memoryOptions.validate() {
			err = problem
		}
		if tc.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("%s: got %v, want %s", tc.flags, err, tc.wantErr)
			}
			continue
		}
		if err != nil || memoryOptions.Caches.String() != tc.caches || memoryOptions.History.String() != tc.history {
			t.Errorf("%s: got caches %s, history %s, error %v, want %s, %s", tc.flags, &memoryOptions.Caches, &memoryOptions.History, err, tc.caches, tc.history)
		}
	}
}
