// Package autoregister maintains the APIService objects of group versions that this server serves:
// built-in ones and those of custom resources. Package build creates Registrations and calls Run.
package autoregister
