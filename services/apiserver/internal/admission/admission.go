// Package admission is the chain of plugins that may change (Mutator) or refuse
// (Validator) what is about to be written, after authorization and before
// storage. A folder below it holds each plugin. Endpoints call the chain with
// the object in its served form.
package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// Operation is what a request does to an object.
type Operation string

// The operations.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes are what a plugin decides on. Object is nil for Delete, OldObject
// for Create; a mutator changes Object in place.
type Attributes struct {
	Operation       Operation
	Kind            *registry.Kind
	Namespace, Name string
	Subresource     string
	Object          runtime.Object
	OldObject       runtime.Object
	User            *request.User
	DryRun          bool
}

// Mutator may change the object; an error refuses the request.
type Mutator interface {
	Admit(ctx context.Context, a *Attributes) error
}

// Validator may refuse the request.
type Validator interface {
	Validate(ctx context.Context, a *Attributes) error
}

// Plugin is a named member of the chain: a Mutator, a Validator, or both.
type Plugin struct {
	Name   string
	Plugin any
}

// Chain asks its plugins in order; the first refusal ends it.
type Chain struct {
	mutators   []Mutator
	validators []Validator
}

// NewChain makes the chain.
func NewChain(plugins ...Plugin) *Chain {
	c := &Chain{}
	for _, p := range plugins {
		if m, ok := p.Plugin.(Mutator); ok {
			c.mutators = append(c.mutators, m)
		}
		if v, ok := p.Plugin.(Validator); ok {
			c.validators = append(c.validators, v)
		}
	}
	return c
}

// Mutate runs the mutating phase.
func (c *Chain) Mutate(ctx context.Context, a *Attributes) error {
	for _, m := range c.mutators {
		if err := m.Admit(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Validate runs the validating phase.
func (c *Chain) Validate(ctx context.Context, a *Attributes) error {
	for _, v := range c.validators {
		if err := v.Validate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}
