// Package cmpopts is empty. Tests of dependencies import it, and go mod tidy looks for it.
package cmpopts
