# Makes a text file a C++ string literal, for an #include where the literal is to stand:
#   cmake -D INPUT=page.html -D OUTPUT=page.html.inc -P EmbedText.cmake
file(READ ${INPUT} text)
file(WRITE ${OUTPUT} "R\"text(${text})text\"\n")
