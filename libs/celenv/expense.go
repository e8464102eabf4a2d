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
func (c *Expense) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, expenseKey{}, c)
}

func expenseOf(ctx context.Context) *Expense {
	c, _ := ctx.Value(expenseKey{}).(*Expense)
	return c
}

// bound is how much an evaluation may cost before it is costly.
func (c *Expense) bound() uint64 {
	if c == nil {
		return math.MaxUint64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.costly == nil {
		return math.MaxUint64
	}
	return c.left
}

// passed tells that an evaluation has passed its bound.
func (c *Expense) passed() {
	c.mu.Lock()
	costly := c.costly
	c.costly = nil
	c.mu.Unlock()
	if costly != nil {
		costly()
	}
}

// spent counts an evaluation that is over.
func (c *Expense) spent(units uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left -= min(c.left, units)
}
