// Package served is the set of kinds that a request sees, from routing to
// answer. A Set is immutable: whoever takes it once sees the same kinds, however
// they change meanwhile. Live holds the newest one; the front door takes it once
// for each request (package request), and everybody behind goes by what the
// request carries. Sets with custom kinds are made one from the other (Set.With) and
// share what does not differ, so that a definition that comes costs the same beside
// thousands.
package served
