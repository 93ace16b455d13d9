#!/bin/bash
# tally.py counts what passed, and takes every way of not passing for a failure.
set -u
tally=$PWD/$1
cd "$TEST_TMPDIR" || exit 1

configured() {
  printf '{"id":{"targetConfigured":{"label":"%s"}},' "$1"
  printf '"configured":{"targetKind":"cc_test rule"}}\n'
}

# result LABEL STATUS XML_FILE [ATTEMPT]: the events of one test, as Bazel writes them.
result() {
  configured "$1"
  printf '{"id":{"testResult":{"label":"%s","run":1,"shard":1,"attempt":%s}},' "$1" "${4:-1}"
  printf '"testResult":{"status":"%s","testActionOutput":[{"name":"test.xml",' "$2"
  printf '"uri":"file://%s"}]}}\n' "$PWD/$3"
}

# report XML_FILE TESTCASE...
report() {
  local file=$1
  shift
  echo "<testsuites><testsuite>$*</testsuite></testsuites>" > "$file"
}

# expect NAME EXIT_CODE LAST_LINE BAZEL_EXIT_CODE < events
expect() {
  cat > events
  local output code
  output=$(python3 "$tally" events "$4")
  code=$?
  if [ $code -ne "$2" ] || [ "$(tail -n 1 <<< "$output")" != "$3" ]; then
    echo "FAILED: $1: exit code $code (expected $2), output (expected last line \"$3\"):"
    echo "$output"
    touch failed  # a variable would be lost: pipelines run in subshells
  fi
}

a='<testcase name="a"/>'
report two.xml "$a" '<testcase name="b"/>'
report one_of_two.xml "$a" '<testcase name="b"><failure/></testcase>'
report error.xml '<testcase name="a"><error/></testcase>'
report skip.xml '<testcase name="a"><skipped message="no GPU"/></testcase>'
report whim.xml "$a" '<testcase name="b"><skipped message="not today"/></testcase>'
report client.xml '<testcase name="a"><skipped message="cannot be installed: pip: no network"/></testcase>'
report form.xml '<testcase name="a"><skipped message="no xgrammar: deploy/install_xgrammar"/></testcase>'
report templates.xml '<testcase name="a"><skipped message="no chat templates: none were fetched"/></testcase>'
report ids.xml '<testcase name="a"><skipped message="no vocabularies: none were fetched"/></testcase>'
report page.xml '<testcase name="a"><skipped message="no Chromium: chromedriver is not there"/></testcase>'
report empty.xml ''
echo '<testsuites><testsuite><testcase na' > partial.xml

result //t:a PASSED two.xml | expect "all pass" 0 "2 passed, 0 failed" 0
{ result //t:a PASSED two.xml; result //t:b FAILED one_of_two.xml; } |
  expect "a failed case" 1 "3 passed, 1 failed" 3
result //t:a FAILED error.xml | expect "an error" 1 "0 passed, 1 failed" 3
{ result //t:a PASSED two.xml; result //t:b PASSED skip.xml; } |
  expect "a skip is counted" 0 "2 passed, 0 failed, 1 skipped" 0
{ result //t:a PASSED two.xml; result //t:b PASSED client.xml; } |
  expect "a client that cannot be fetched is counted" 0 "2 passed, 0 failed, 1 skipped" 0
{ result //t:a PASSED two.xml; result //t:b PASSED form.xml; } |
  expect "a build without xgrammar is counted" 0 "2 passed, 0 failed, 1 skipped" 0
{ result //t:a PASSED two.xml; result //t:b PASSED templates.xml; } |
  expect "a machine without published templates is counted" 0 "2 passed, 0 failed, 1 skipped" 0
{ result //t:a PASSED two.xml; result //t:b PASSED ids.xml; } |
  expect "a machine without published vocabularies is counted" 0 "2 passed, 0 failed, 1 skipped" 0
{ result //t:a PASSED two.xml; result //t:b PASSED page.xml; } |
  expect "a machine without a browser is counted" 0 "2 passed, 0 failed, 1 skipped" 0
{ result //t:a FAILED one_of_two.xml 1; result //t:a PASSED two.xml 2; } |
  expect "a later attempt counts" 0 "2 passed, 0 failed" 0
grep -q "^AGAIN   //t:a: failed at attempt 1$" <(python3 "$tally" events 0) || { echo "FAILED: a first attempt is not named"; touch failed; }
result //t:b PASSED whim.xml | expect "any other skip fails" 1 "1 passed, 1 failed" 0
export ALLOWED_SKIPS="//t:b //t:c"
result //t:b PASSED whim.xml | expect "unless it is allowed" 0 "1 passed, 0 failed, 1 skipped" 0
result //t:a PASSED whim.xml | expect "by its own label" 1 "1 passed, 1 failed" 0
unset ALLOWED_SKIPS
{ result //t:a PASSED two.xml; result //t:b TIMEOUT nowhere.xml; } |
  expect "a timeout without a report" 1 "2 passed, 1 failed" 3
result //t:a FAILED partial.xml | expect "a partial report" 1 "0 passed, 1 failed" 3
result //t:a FAILED two.xml | expect "a crash after its cases passed" 1 "2 passed, 1 failed" 3
result //t:a PASSED empty.xml | expect "a test without cases" 1 "0 passed, 1 failed" 0
expect "nothing ran" 1 "0 passed, 0 failed" 4 < /dev/null
expect "bazel did not start" 1 "0 passed, 1 failed" 37 < /dev/null
{ result //t:a PASSED two.xml; echo '{"id":{"test'; } |
  expect "bazel was killed" 1 "2 passed, 1 failed" 8
{
  result //t:a PASSED two.xml
  configured //t:b
  echo '{"id":{"targetCompleted":{"label":"//t:b"}},"completed":{}}'
} | expect "a test that does not build" 1 "2 passed, 1 failed" 1
result //t:a PASSED two.xml | expect "a library that does not build" 1 "2 passed, 1 failed" 1

[ ! -e failed ]
