package admission

import (
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/semantic"
)

// Reinvocation is the state that a plugin of the mutating phase keeps between its two calls for one
// request: the callees that it called, such as webhooks, and those that it calls again. A callee is
// called again if it wants that and the object changed after its first call.
type Reinvocation struct {
	request *Request
	// wanted holds the callees to call again if the object changes; due holds those to call again.
	wanted, due map[string]bool
	// last is the object after the plugin's last call.
	last runtime.Object
}

// Reinvocation starts a call of the plugin with the given key.
func (r *Request) Reinvocation(key any) *Reinvocation {
	t, _ := r.State(key).(*Reinvocation)
	if t == nil || !r.Reinvoked() {
		t = &Reinvocation{request: r, wanted: map[string]bool{}, due: map[string]bool{}}
		r.SetState(key, t)
	} else if r.Object != nil && !semantic.Equal(t.last, r.Object) {
		t.scheduleWanted()
	}
	return t
}

// ShouldCall reports whether a callee is to be called now.
func (t *Reinvocation) ShouldCall(callee string) bool { return !t.request.Reinvoked() || t.due[callee] }

// Changed schedules another call of the callees that want one after a change.
func (t *Reinvocation) Changed() {
	t.scheduleWanted()
	t.request.RequestReinvocation()
}

// WantsReinvocation records that a callee wants another call if the object changes.
func (t *Reinvocation) WantsReinvocation(callee string) { t.wanted[callee] = true }

func (t *Reinvocation) scheduleWanted() {
	for callee := range t.wanted {
		t.due[callee] = true
	}
	clear(t.wanted)
}

// End ends the call of the plugin.
func (t *Reinvocation) End() {
	t.last = nil
	if t.request.Object != nil && len(t.wanted) > 0 {
		t.last = t.request.Object.DeepCopyObject()
	}
}
