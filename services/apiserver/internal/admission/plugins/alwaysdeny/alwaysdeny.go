// Package alwaysdeny rejects every request.
package alwaysdeny

import (
	"context"
	"errors"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "AlwaysDeny"

var errDenied = errors.New("admission control is denying all modifications")

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct{}

// Admit implements admission.Mutator.
func (Plugin) Admit(_ context.Context, r *admission.Request) error { return r.Forbidden(errDenied) }

// Validate implements admission.Validator.
func (Plugin) Validate(_ context.Context, r *admission.Request) error { return r.Forbidden(errDenied) }
