package celenv

import (
	"context"
	"math"
	"sync"
)

// Expense counts the cost of several expressions together. It is safe for concurrent use.
type Expense struct {
	mu     sync.Mutex // leaf lock
	left   uint64     // units before costly is called
	costly func()     // nil once called
}

// NewExpense returns an Expense that calls costly once, when expressions have cost the given units.
// The goroutine that evaluates an expression calls it in the middle of the evaluation, which then
// continues.
func NewExpense(units uint64, costly func()) *Expense { return &Expense{left: units, costly: costly} }

type expenseKey struct{}

// With returns a context in which the Expense counts all evaluations.
func (e *Expense) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, expenseKey{}, e)
}

func expenseOf(ctx context.Context) *Expense {
	e, _ := ctx.Value(expenseKey{}).(*Expense)
	return e
}

// bound returns the cost at which an evaluation becomes costly.
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

// passed calls costly, once, after an evaluation has passed its bound.
func (e *Expense) passed() {
	e.mu.Lock()
	costly := e.costly
	e.costly = nil
	e.mu.Unlock()
	if costly != nil {
		costly()
	}
}

// spent adds the cost of a finished evaluation.
func (e *Expense) spent(units uint64) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left -= min(e.left, units)
}
