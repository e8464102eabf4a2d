package backends

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestWhoComesMeanwhileIsWrittenTogether, and learns of its own line alone.
func TestWhoComesMeanwhileIsWrittenTogether(t *testing.T) {
	for name, whole := range map[string]int{"all": 20, "some": 7, "none": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			out := &halting{gated: newGated(), whole: 1 << 20}
			o := logOptions(standard)
			o.Mode = string(BlockingStrict)
			b, err := NewLog(o, f.config, out)
			if err != nil {
				t.Fatal(err)
			}
			const others = 20
			var telling sync.WaitGroup
			var refused atomic.Int32
			tell := func(n int) {
				telling.Go(func() {
					if b.Process(t.Context(), event(n, 0)) != nil {
						refused.Add(1)
					}
				})
			}
			tell(0)
			<-out.asked // the first is being written
			for n := range others {
				tell(n + 1)
			}
			rounds := &b.to.(*lines).rounds
			f.eventually("waiting", func() bool {
				rounds.mu.Lock()
				defer rounds.mu.Unlock()
				return rounds.next != nil && len(rounds.next.lines) == others
			})
			out.whole = 1 + whole
			close(out.open)
			telling.Wait()
			if n := len(out.asked); n != 1 {
				t.Errorf("%d more writes", n)
			}
			text := out.String()
			got := idsOf(t, text[:strings.LastIndexByte(text, '\n')+1])
			var want []string
			for n := range others + 1 {
				want = append(want, fmt.Sprint("e", n))
			}
			slices.Sort(want)
			if slices.Sort(got); len(got) != 1+whole || len(slices.Compact(slices.Clone(got))) != len(got) || whole == others && !slices.Equal(got, want) {
				t.Errorf("written %q", got)
			}
			if lost := others - whole; int(refused.Load()) != lost {
				t.Errorf("%d are told that their events are lost, %d are", refused.Load(), lost)
			}
			f.wantLost(logName, others-whole)
		})
	}
}

// halting takes so many lines, and half of the next.
type halting struct {
	*gated
	whole int
}

func (h *halting) Write(p []byte) (int, error) {
	h.asked <- struct{}{}
	<-h.open
	had := strings.Count(h.String(), "\n")
	end := 0
	for range h.whole - had {
		i := slices.Index(p[end:], '\n')
		if i < 0 {
			return h.safeBuffer.Write(p)
		}
		end += i + 1
	}
	if end == len(p) {
		return h.safeBuffer.Write(p)
	}
	n, _ := h.safeBuffer.Write(p[:end+(len(p)-end)/(2*len(p))])
	return n, errors.New("no space left on device")
}
