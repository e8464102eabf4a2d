package admission

import (
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/semantic"
)

// Turns is what a plugin of the mutating phase keeps of a request between its two
// turns: whom it asked, by keys of its own, and whom it asks again. That are those
// who want to be, when something changed after their first turn.
type Turns struct {
	request *Request
	// asked may be asked again when something changes, due will be.
	asked, due map[string]bool
	// last is the object as the plugin left it.
	last runtime.Object
}

// Turns begins a turn of the plugin that has the key.
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

// Asks tells whether somebody is to be asked in this turn.
func (t *Turns) Asks(who string) bool { return !t.request.Reinvoked() || t.due[who] }

// Changed makes those due that have been asked and want to be asked again.
func (t *Turns) Changed() {
	t.require()
	t.request.AskAgain()
}

// Asked notes who wants to be asked again when something changes.
func (t *Turns) Asked(who string) { t.asked[who] = true }

func (t *Turns) require() {
	for who := range t.asked {
		t.due[who] = true
	}
	clear(t.asked)
}

// End ends the turn.
func (t *Turns) End() {
	t.last = nil
	if t.request.Object != nil && len(t.asked) > 0 {
		t.last = t.request.Object.DeepCopyObject()
	}
}
