package admission

import (
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/semantic"
)

// Turns is the state that a plugin of the mutating phase keeps between its two calls for one
// request: the callees that it called, by keys of its own, and those that it calls again. A callee
// is called again if it wants that and the object changed after its first call.
type Turns struct {
	request *Request
	// asked holds the callees to call again if the object changes; due holds those to call again.
	asked, due map[string]bool
	// last is the object after the plugin's last call.
	last runtime.Object
}

// Turns starts a call of the plugin with the given key.
func (r *Request) Turns(key any) *Turns {
	t, _ := r.State(key).(*Turns)
	if t == nil || !r.Reinvoked() {
		t = &Turns{request: r, asked: map[string]bool{}, due: map[string]bool{}}
		r.SetState(key, t)
	} else if r.Object != nil && !semantic.Equal(t.last, r.Object) {
		t.require()
	}
	return t
}

// Asks reports whether a callee is to be called now.
func (t *Turns) Asks(who string) bool { return !t.request.Reinvoked() || t.due[who] }

// Changed schedules another call of the callees that want one after a change.
func (t *Turns) Changed() {
	t.require()
	t.request.AskAgain()
}

// Asked records that a callee wants another call if the object changes.
func (t *Turns) Asked(who string) { t.asked[who] = true }

func (t *Turns) require() {
	for who := range t.asked {
		t.due[who] = true
	}
	clear(t.asked)
}

// End ends the call of the plugin.
func (t *Turns) End() {
	t.last = nil
	if t.request.Object != nil && len(t.asked) > 0 {
		t.last = t.request.Object.DeepCopyObject()
	}
}
