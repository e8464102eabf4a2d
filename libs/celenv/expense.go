package celenv

import (
	"context"
	"math"
	"sync"
)

// Expense is what the expressions of one occasion cost together.
type Expense struct {
	mu     sync.Mutex // a leaf
	left   uint64     // until costly is called
	costly func()     // nil since it was
}

// NewExpense has costly called once, when expressions have cost so many units: by who evaluates one of
// them, in its middle, which goes on after that.
func NewExpense(units uint64, costly func()) *Expense { return &Expense{left: units, costly: costly} }

type expenseKey struct{}

// With is a context in which expressions that are evaluated count.
func (e *Expense) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, expenseKey{}, e)
}

func expenseOf(ctx context.Context) *Expense {
	e, _ := ctx.Value(expenseKey{}).(*Expense)
	return e
}

// bound is how much an evaluation may cost before it is costly.
func (e *Expense) bound() uint64 {
	if e == nil {
		return math.MaxUint64
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.costly == nil {
		return math.MaxUint64
	}
	return e.left
}

// passed tells that an evaluation has passed its bound.
func (e *Expense) passed() {
	e.mu.Lock()
	costly := e.costly
	e.costly = nil
	e.mu.Unlock()
	if costly != nil {
		costly()
	}
}

// spent counts an evaluation that is over.
func (e *Expense) spent(units uint64) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left -= min(e.left, units)
}
