// Package autoregister maintains the APIService objects of the group versions that this server
// itself serves. CustomVersions tracks the group versions of custom resources, and Registrations
// creates, corrects and deletes their APIServices. Package bootstrap creates the APIServices of
// built-in group versions. Package build creates Registrations and calls Run.
package autoregister
