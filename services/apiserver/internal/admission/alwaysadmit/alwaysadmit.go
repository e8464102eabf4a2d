// Package alwaysadmit has nothing against anything. It is there because it can be
// named.
package alwaysadmit

import (
	"context"

	"binnacle/services/apiserver/internal/admission"
)

// Name of the plugin in flags and configuration.
const Name = "AlwaysAdmit"

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct{}

// Admit implements admission.Mutator.
func (Plugin) Admit(context.Context, *admission.Request) error { return nil }

// Validate implements admission.Validator.
func (Plugin) Validate(context.Context, *admission.Request) error { return nil }
